# What every target of the project is compiled with, as one interface target.
add_library(cuvmm_settings INTERFACE)
target_compile_features(cuvmm_settings INTERFACE cxx_std_20)
target_compile_options(cuvmm_settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
                                                -Woverloaded-virtual -Wcast-align)
if(CUVMM_WARNINGS_AS_ERRORS)
  target_compile_options(cuvmm_settings INTERFACE -Werror)
endif()
target_compile_definitions(cuvmm_settings INTERFACE FMT_HEADER_ONLY=1)
