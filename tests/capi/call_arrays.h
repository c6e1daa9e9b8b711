#pragma once
// The arrays of a call of the C API, for its tests.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "cellc.h"

/// Memory for every array of a call, filled by a rule; what is written holds 77.
template <typename T>
struct Arrays {
  std::vector<std::vector<T>> memory;
  std::vector<cellc_array> table;
  cellc_kernel* kernel;

  Arrays(cellc_kernel* kernel, const cellc_shape& shape, cellc_dtype dtype) : kernel(kernel) {
    const int count = cellc_array_count(kernel);
    memory.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      cellc_array_info info;
      std::int64_t entries = -1;
      EXPECT_EQ(cellc_array_describe(kernel, i, &info), CELLC_OK);
      EXPECT_EQ(cellc_array_entries(kernel, &shape, i, &entries), CELLC_OK) << cellc_last_error();
      auto& m = memory[static_cast<std::size_t>(i)];
      for (std::int64_t k = 0; k < entries; ++k) {
        const auto angle = static_cast<double>(k + 3) * 0.7 + i;
        m.push_back(info.written ? T(77) : static_cast<T>(0.4 * std::sin(angle)));
      }
      table.push_back({m.data(), entries, dtype, 0, 0});
    }
  }
  std::size_t index(const char* name) const {
    const int found = cellc_array_find(kernel, name);
    EXPECT_GE(found, 0) << name;
    return static_cast<std::size_t>(found);
  }
  std::vector<T>& of(const char* name) { return memory[index(name)]; }
  cellc_array& at(const char* name) { return table[index(name)]; }
  int count() const { return static_cast<int>(table.size()); }
  bool untouched() const {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      cellc_array_info info;
      cellc_array_describe(kernel, static_cast<int>(i), &info);
      if (info.written)
        for (const T v : memory[i])
          if (v != T(77)) return false;
    }
    return true;
  }
};
