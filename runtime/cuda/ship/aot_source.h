#pragma once
// The kernels of a shipped cell as one text: a namespace for each type that something runs in, each with the templates
// that its kernels need; and the kernels by number.
#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/data/array.h"

namespace cellc {

class AotSource {
 public:
  /// `prefix` is that of every name; `factors`: of products.
  AotSource(const std::string& prefix, ProductFactors factors) : prefix_(prefix), factors_(factors) {}

  /// Puts `text` into the namespace of `storage`, which needs the templates `uses`.
  void add(Dtype storage, const std::string& text, const std::vector<std::string>& uses = {});
  /// The number of the next kernel; it stands in the namespace `place`, "a::b::".
  int add_kernel(const std::string& name, const std::string& place);
  /// `number` will be that of the matrix product in `storage`, of rows that lie in it where they are `stored`, else of
  /// arithmetic precision.
  void ask_for_product(Dtype storage, int* number, bool stored) {
    (stored ? groups_[storage].stored_products : groups_[storage].products).push_back(number);
  }
  /// A kernel that a call needs beside those of the cell: `function` of the last of the templates.
  int add_call_kernel(Dtype storage, const char* name, const char* argument, const char* function,
                      const std::vector<std::string>& uses = {"call.cuh"});

  /// "prefix_f32::": the namespace of a type.
  std::string space_of(Dtype storage) const;

  /// All of it. Nothing is added after that.
  std::string finish();

  std::vector<std::string> kernels;  ///< by number: extern "C" names
  std::vector<std::string> places;   ///< by number

 private:
  struct Group {
    std::string text;
    std::vector<std::string> uses;                ///< templates that stand at its head, beside the first two
    std::vector<int*> products, stored_products;  ///< who asks for the number of its product
  };

  const std::string prefix_;
  const ProductFactors factors_;
  std::map<Dtype, Group> groups_;
};

}  // namespace cellc
