# Libraries that run where glibc is older than here: CELLC_OLDEST_GLIBC=2.28, of wheels that manylinux_2_28 stands for.
#
# They are compiled and linked as ever, on x86-64. What they ask of glibc under later versions than 2.28 has is defined in
# them over what it has (glibc_2_28.c); libstdc++, fmt, zlib and zstd are linked in, as those of this machine ask for its
# glibc. What is linked is checked, so that a function that nobody thought of stops the build and not the program.
set(CELLC_OLDEST_GLIBC "" CACHE STRING "The oldest glibc that shared libraries run on: 2.28; empty: this machine's")
set(cellc_oldest_glibc_folder ${CMAKE_CURRENT_LIST_DIR})
if(CELLC_OLDEST_GLIBC AND NOT CELLC_OLDEST_GLIBC STREQUAL "2.28")
  message(FATAL_ERROR "CELLC_OLDEST_GLIBC is ${CELLC_OLDEST_GLIBC}; expected 2.28, or nothing")
endif()
if(CELLC_OLDEST_GLIBC AND NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  message(FATAL_ERROR "CELLC_OLDEST_GLIBC is for x86-64; this is ${CMAKE_SYSTEM_PROCESSOR}")
endif()

# Of a shared library or a module. Further arguments: sources that it needs, too.
function(cellc_for_oldest_glibc target)
  if(NOT CELLC_OLDEST_GLIBC)
    return()
  endif()
  set(shim ${cellc_oldest_glibc_folder}/glibc_2_28.c)
  set_source_files_properties(${shim} PROPERTIES COMPILE_OPTIONS "-fno-builtin;-ffunction-sections")
  target_sources(${target} PRIVATE ${shim} ${ARGN})
  # In 2.28 threads and dlopen have libraries of their own.
  target_link_options(${target} PRIVATE -static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--gc-sections)
  target_link_libraries(${target} PRIVATE
    -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -D FILE=$<TARGET_FILE:${target}> -D OLDEST=${CELLC_OLDEST_GLIBC}
            -D READELF=${CMAKE_READELF} -P ${cellc_oldest_glibc_folder}/check_versions.cmake
    VERBATIM)
endfunction()

# Links the archives in place of shared libraries that packages name as imported targets.
function(cellc_link_archives)
  if(NOT CELLC_OLDEST_GLIBC)
    return()
  endif()
  foreach(pair ${ARGN})
    string(REGEX MATCH "^(.*)=(.*)$" all ${pair})
    set(imported ${CMAKE_MATCH_1})
    find_library(cellc_archive_${CMAKE_MATCH_2} NAMES lib${CMAKE_MATCH_2}.a REQUIRED)
    if(TARGET ${imported})
      set_target_properties(${imported} PROPERTIES IMPORTED_LOCATION ${cellc_archive_${CMAKE_MATCH_2}}
        IMPORTED_LOCATION_RELEASE ${cellc_archive_${CMAKE_MATCH_2}}
        IMPORTED_LOCATION_NONE ${cellc_archive_${CMAKE_MATCH_2}})
    endif()
  endforeach()
endfunction()
