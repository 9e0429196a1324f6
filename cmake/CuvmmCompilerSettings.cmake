# What every target of the project is compiled with, as one interface target.
add_library(cuvmm_settings INTERFACE)
target_compile_features(cuvmm_settings INTERFACE cxx_std_20)
# For our own build alone: an installed target does not hand its warnings on.
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual -Wcast-align)
if(CUVMM_WARNINGS_AS_ERRORS)
  list(APPEND warnings -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlapping copies in std::string's own operator+ (https://gcc.gnu.org/PR105651).
  list(APPEND warnings -Wno-restrict)
endif()
# In a batch of sources a local name may be that of a function which another of them has for itself.
list(APPEND warnings "$<$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>:-Wno-shadow>")
target_compile_options(cuvmm_settings INTERFACE "$<BUILD_INTERFACE:${warnings}>")

# cuvmm_compile_in_batches(TARGET [ALONE SOURCE...]): compiles several sources of the target at once where the build asks
# for that. Most of the time goes into the headers and templates that they share. ALONE are those whose own names are
# other sources' names too.
function(cuvmm_compile_in_batches target)
  if(NOT CUVMM_COMPILE_IN_BATCHES)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 batches "" "" "ALONE")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  if(batches_ALONE)
    set_source_files_properties(${batches_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# For static libraries that shared ones are made of, ours and other people's. Functions are called and inlined as in a
# program all the same: nobody puts others in their place.
function(cuvmm_may_be_linked_into_shared_libraries target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
endfunction()

# Both are set for the whole build rather than for our targets: mixing sanitized and plain objects, or two C++ runtimes,
# in one program goes wrong in ways that no message explains.
if(CUVMM_SANITIZE)
  # The check of vtable pointers opens a pipe, and so fails where a test leaves the process no descriptors.
  add_compile_options("-fsanitize=${CUVMM_SANITIZE}" -fno-sanitize=vptr -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${CUVMM_SANITIZE}")
endif()
if(CUVMM_STATIC_RUNTIME)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_EXTENSIONS OFF)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
