#pragma once
// A call as cellc.h has it, all of whose arrays have their places. Other threads of Python run meanwhile.
#include <nanobind/nanobind.h>

#include "kernel.h"

namespace cellc::python {

struct PlacedCall {
  const Kernel& kernel;
  cellc_shape shape;
  const cellc_array* arrays;
  int count;
  void* stream;
  cellc_call* prepared;  ///< or null
  bool on_host;          ///< arrays of the host, without gaps, of a kernel of a GPU

  /// Without the GIL.
  cellc_status run_forward(cellc_report* report) const;
  cellc_status run_backward() const;
  /// With it, for the time of which others have it; but not for that of a prepared call, which is over by then.
  cellc_status forward(cellc_report* report) const;
  void backward() const;
  void tangent() const;

 private:
  cellc_status run_on_copies(cellc_direction direction, cellc_report* report) const;
};

}  // namespace cellc::python
