# cmake -D OUTPUT=FILE.cc -D DIRECTORY=DIR -P embed_templates.cmake
# Writes kernel_templates() of runtime/cuda/build/kernel_templates.h, with the text of every *.cuh and *.h below DIR.
file(GLOB_RECURSE files RELATIVE ${DIRECTORY} ${DIRECTORY}/*.cuh ${DIRECTORY}/*.h)
set(names "")
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  list(FIND names ${name} before)
  if(NOT before EQUAL -1)
    message(FATAL_ERROR "two templates are named ${name}: they are found by name")
  endif()
  list(APPEND names ${name})
  set(file_of_${name} ${file})
endforeach()
list(SORT names)
set(texts "")
set(rows "")
set(count 0)
foreach(name IN LISTS names)
  # Bytes, not a literal: no text then needs escaping, and no compiler's limit on literals is met.
  file(READ ${DIRECTORY}/${file_of_${name}} bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR length "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND texts "const unsigned char kText${count}[] = {  // ${name}\n    ${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", {reinterpret_cast<const char*>(kText${count}), ${length}}},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Written by cmake/embed_templates.cmake.
#include \"runtime/cuda/build/kernel_templates.h\"

namespace cellc {
namespace {

${texts}
}  // namespace

std::span<const KernelTemplate> kernel_templates() {
  static const KernelTemplate kTemplates[] = {
${rows}  };
  return kTemplates;
}

}  // namespace cellc
")
