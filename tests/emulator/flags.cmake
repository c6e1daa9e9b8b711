# How the emulator compiles kernels: a thousand in a run of the tests, most of which run for milliseconds. So by clang where
# there is one, as runtime/build wants it anyway: without optimisation it takes half of the time that gcc takes.
if(CELLC_CLANG)
  set(emulator_compiler ${CELLC_CLANG})
  execute_process(COMMAND ${CELLC_CLANG} -dumpversion OUTPUT_VARIABLE emulator_compiler_version
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(emulator_compiler_id Clang)
else()
  set(emulator_compiler ${CMAKE_CXX_COMPILER})
  set(emulator_compiler_version ${CMAKE_CXX_COMPILER_VERSION})
  set(emulator_compiler_id ${CMAKE_CXX_COMPILER_ID})
endif()

# Each flag stands in for something that a card does or a tool would find.
set(emulator_flags
  -std=c++20 -DCELLC_EMULATOR
  -g1 -w -fPIC                            # lines, for the place of an error
  -fvisibility=hidden                     # two objects may define the same names
  -fno-strict-aliasing -fwrapv            # as the device compiler treats casts and overflow
  -ffp-contract=off                       # __fmul_rn and its like round once; fmaf is called where it is meant
  -fno-optimize-sibling-calls             # who waits has the line where it does
  -fsanitize=alignment,bounds             # a card traps on misaligned vectors; indices into arrays of known size
  -fstack-clash-protection                # a full stack is found in its first page, whatever is on top
  -ftrivial-auto-var-init=pattern)        # locals that nobody wrote are not zero by luck
if(emulator_compiler_id STREQUAL "GNU")
  # Otherwise template statics of all objects are one variable for the whole process.
  list(APPEND emulator_flags -fno-gnu-unique -fsanitize-undefined-trap-on-error)
else()
  list(APPEND emulator_flags -fsanitize-trap=alignment,bounds)
endif()

# What every kernel includes, parsed once. Both compilers take it for `-include cuda_shim-O0.h`, of which there is no more
# than this.
set(emulator_precompiled ${CMAKE_CURRENT_BINARY_DIR}/cuda_shim)
set(suffix pch)
if(emulator_compiler_id STREQUAL "GNU")
  set(suffix gch)
endif()
set(precompiled "")
foreach(level -O0 -O1)
  set(header ${emulator_precompiled}${level}.h)
  add_custom_command(OUTPUT ${header}.${suffix}
    COMMAND ${emulator_compiler} -x c++-header ${level} ${emulator_flags} -MD -MF ${header}.d -MT ${header}.${suffix}
            ${CMAKE_CURRENT_LIST_DIR}/cuda_shim.h -o ${header}.${suffix}
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cuda_shim.h DEPFILE ${header}.d VERBATIM)
  list(APPEND precompiled ${header}.${suffix})
endforeach()
add_custom_target(cellc_emulator_shim DEPENDS ${precompiled})
add_dependencies(cellc_emulator cellc_emulator_shim)

list(JOIN emulator_flags " " emulator_flags)
target_compile_definitions(cellc_emulator PRIVATE
  CELLC_EMULATOR_COMPILER="${emulator_compiler}"
  CELLC_EMULATOR_COMPILER_VERSION="${emulator_compiler_version}"
  CELLC_EMULATOR_LINKER="${CMAKE_LINKER}"
  CELLC_EMULATOR_FLAGS="${emulator_flags}"
  CELLC_EMULATOR_PRECOMPILED="${emulator_precompiled}"
  CELLC_EMULATOR_SHIM="${CMAKE_CURRENT_LIST_DIR}"
  CELLC_EMULATOR_CACHE="${PROJECT_BINARY_DIR}/emulator-cache")
