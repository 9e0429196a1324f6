# Target cuvmm_headers, not part of a plain build: one source file for each header, which includes it and nothing else.
# It proves that every header can be included alone, and gives clang-tidy each header as a file of its own.
file(GLOB_RECURSE headers RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/include/*.hpp" "${PROJECT_SOURCE_DIR}/src/*.hpp" "${PROJECT_SOURCE_DIR}/emulator/*.hpp")
# Needs what need not be there; its test includes it first.
list(REMOVE_ITEM headers include/cuvmm/pool/cccl_resource.hpp)
set(sources "")
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER "${header}" identifier)
  set(source "${PROJECT_BINARY_DIR}/headers/${identifier}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"@PROJECT_SOURCE_DIR@/@header@\"\n" @ONLY)
  list(APPEND sources "${source}")
endforeach()
add_library(cuvmm_headers OBJECT EXCLUDE_FROM_ALL ${sources})
target_include_directories(cuvmm_headers PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/include")
target_link_libraries(cuvmm_headers PRIVATE cuvmm_driver_interface cuvmm_fmt)
