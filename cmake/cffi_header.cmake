# cmake -D INPUT=cellc.h -D OUTPUT=cellc_cffi.h -P: the declarations of the header alone, for readers that know C but no
# preprocessor, such as Python's cffi. What stands for C++ goes, and every directive but numbers that have a name.
file(READ "${INPUT}" text)
string(REGEX REPLACE "#ifdef __cplusplus\n[^#]*#else\n([^#]*)#endif\n" "\\1" text "${text}")
string(REGEX REPLACE "#ifdef __cplusplus\n[^#]*#endif\n" "" text "${text}")
string(REGEX REPLACE "#define (CELLC_[A-Z_]+) ([0-9]+)[^\n]*\n" "@define \\1 \\2\n" text "${text}")
string(REGEX REPLACE "#[^\n]*\n" "" text "${text}")
string(REPLACE "@define" "#define" text "${text}")
string(REPLACE "CELLC_API " "" text "${text}")
file(WRITE "${OUTPUT}" "${text}")
