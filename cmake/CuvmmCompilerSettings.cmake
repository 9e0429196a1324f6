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
target_compile_options(cuvmm_settings INTERFACE "$<BUILD_INTERFACE:${warnings}>")

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
