#pragma once
// The places in which an NVRTC may lie.
#include <optional>
#include <string>
#include <vector>

namespace cellc {

/// {13, 0, 88} of "libnvrtc.so.13.0.88", {} of "libnvrtc.so"; nothing for any other name, such as that of
/// libnvrtc.alt.so.13 or libnvrtc-builtins.so.13.0.
std::optional<std::vector<int>> nvrtc_file_version(const std::string& name);

/// The NVRTC files of a directory, the newest first; a file with several names has its longest.
std::vector<std::string> nvrtc_files_in(const std::string& directory);

/// What is installed below a directory as CUDA toolkits or NVIDIA's wheels install it.
std::vector<std::string> nvrtc_files_below(const std::string& root);

/// All files and loader's names to try, in the order of nvrtc.h. $CELLC_NVRTC is not among them.
std::vector<std::string> nvrtc_candidates();

}  // namespace cellc
