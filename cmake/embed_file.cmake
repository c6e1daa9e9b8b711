# cmake -D OUTPUT=FILE.cc -D INPUT=FILE -D HEADER=FILE.h -D FUNCTION=NAME -P embed_file.cmake
# Writes cellc::NAME() of that header, which gives the bytes of a file.
cmake_minimum_required(VERSION 3.25)
file(READ ${INPUT} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR length "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "// Written by cmake/embed_file.cmake.
#include \"${HEADER}\"

namespace cellc {

alignas(8) static const unsigned char kBytes[] = {
    ${bytes}0};

std::string_view ${FUNCTION}() { return {reinterpret_cast<const char*>(kBytes), ${length}}; }

}  // namespace cellc
")
