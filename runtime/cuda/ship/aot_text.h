#pragma once
// Text of kernels that is shipped: templates as parts of one file, and the kernels of a stage's lanes.
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cuda/launch/stage_program.h"

namespace cellc {

/// A template as a part of a larger file.
std::string template_part(std::string_view name);

/// Takes back what a text defines.
std::string undefined(const std::string& text);

/// `text` with a name, wherever it stands as a whole, replaced by another.
std::string renamed(const std::string& text, const std::string& name, const std::string& other);

/// All that lanes_text() makes of a stage's lanes, but for names: where it is the same, kernels of one stage are those
/// of the other, variant by variant.
std::string kind_of_lanes(const StageProgram::Parts& parts, const cellc_stage& stage,
                          const std::vector<cellc_variant>& variants);

struct LanesText {
  std::string text;
  std::vector<std::string> kernels;  ///< by variant: extern "C" names
  std::vector<std::string> places;   ///< by variant: the namespaces that they stand in, "a::b::"
};
/// The kernels of a stage in one form, in the namespace `place` inside of `outside`. `about`: a line for people;
/// `prefix`: of names.
LanesText lanes_text(const StageProgram::Parts& parts, const cellc_stage& stage,
                     const std::vector<cellc_variant>& variants, const std::string& outside, const std::string& place,
                     const std::string& about, const std::string& prefix);

}  // namespace cellc
