# cmake -D OUTPUT=FILE.cc -D DIRECTORY=DIR -P embed_templates.cmake
# Writes kernel_templates() of runtime/cuda/build/kernel_templates.h, with the text of every *.cuh and *.h below DIR.
# Files of abi/ that a template includes stand in its text in the place of that line.
cmake_minimum_required(VERSION 3.25)
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
# The text of a file with what it includes. What runs on a device has line directives around that, so that messages name
# the file and the line that a reader can open.
function(text_with_includes file result)
  file(READ ${DIRECTORY}/${file} text)
  get_filename_component(name ${file} NAME)
  get_filename_component(extension ${file} EXT)
  set(done "")
  set(before 1)
  while(TRUE)
    string(FIND "${text}" "#include \"kernels-templates/abi/" at)
    if(at EQUAL -1)
      break()
    endif()
    string(SUBSTRING "${text}" 0 ${at} head)
    string(SUBSTRING "${text}" ${at} -1 text)
    string(FIND "${text}" "\n" end)
    string(SUBSTRING "${text}" 0 ${end} line)
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${text}" ${end} -1 text)
    string(REGEX REPLACE ".*kernels-templates/([^\"]*)\".*" "\\1" included "${line}")
    file(READ ${DIRECTORY}/${included} inner)
    string(REGEX MATCHALL "\n" newlines "${head}")
    list(LENGTH newlines count)
    math(EXPR before "${before} + ${count} + 1")
    string(APPEND done "${head}")
    if(extension STREQUAL ".cuh")
      get_filename_component(included ${included} NAME)
      string(APPEND done "#line 1 \"${included}\"\n${inner}#line ${before} \"${name}\"\n")
    else()
      string(PREPEND text "${inner}")  # which may include others
    endif()
  endwhile()
  set(${result} "${done}${text}" PARENT_SCOPE)
endfunction()

set(texts "")
set(rows "")
set(count 0)
foreach(name IN LISTS names)
  # Bytes, not a literal: no text then needs escaping, and no compiler's limit on literals is met.
  text_with_includes(${file_of_${name}} text)
  string(HEX "${text}" bytes)
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
