# How the emulator compiles kernels. Each flag stands in for something that a card does or a tool would find.
set(emulator_flags
  -g1 -w -fPIC                            # lines, for the place of an error
  -fvisibility=hidden                     # two objects may define the same names
  -fno-strict-aliasing -fwrapv            # as the device compiler treats casts and overflow
  -ffp-contract=off                       # __fmul_rn and its like round once; fmaf is called where it is meant
  -fsanitize=alignment,bounds             # a card traps on misaligned vectors; indices into arrays of known size
  -fstack-clash-protection                # a full stack is found in its first page, whatever is on top
  -ftrivial-auto-var-init=pattern)        # locals that nobody wrote are not zero by luck
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Otherwise template statics of all objects are one variable for the whole process.
  list(APPEND emulator_flags -fno-gnu-unique -fsanitize-undefined-trap-on-error)
else()
  list(APPEND emulator_flags -fsanitize-trap=alignment,bounds)
endif()
list(JOIN emulator_flags " " emulator_flags)
target_compile_definitions(cellc_emulator PRIVATE
  CELLC_EMULATOR_COMPILER="${CMAKE_CXX_COMPILER}"
  CELLC_EMULATOR_COMPILER_VERSION="${CMAKE_CXX_COMPILER_VERSION}"
  CELLC_EMULATOR_FLAGS="${emulator_flags}"
  CELLC_EMULATOR_SHIM="${CMAKE_CURRENT_LIST_DIR}"
  CELLC_EMULATOR_CACHE="${PROJECT_BINARY_DIR}/emulator-cache")
