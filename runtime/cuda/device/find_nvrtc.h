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

/// What goes with a library in that directory: in its nvrtc/, and as a wheel next to it, as site-packages has cellc/
/// and nvidia/.
std::vector<std::string> nvrtc_files_beside(const std::string& directory);

/// The builtins of NVRTC in a directory, of any version: file names.
std::vector<std::string> nvrtc_builtins_in(const std::string& directory);

/// All files and loader's names to try, in the order of nvrtc.h. $CELLC_NVRTC is not among them.
std::vector<std::string> nvrtc_candidates();

}  // namespace cellc
