# How tests are declared. Every test carries one of the labels
#   unit emulator conformance processes faults gpu python
# as its folder under tests/ says, so that `ctest -L emulator` runs one kind.
find_package(GTest REQUIRED)
include(GoogleTest)

set(CUVMM_TEST_LABELS unit emulator conformance processes faults gpu python)

# Sanitized tests run several times slower; limits are there to end what hangs, and nothing else.
set(CUVMM_TEST_TIMEOUT 300 CACHE STRING "Seconds after which a single test is taken to hang")

# Tests are compiled more often than they are run, and what they test keeps its optimisation.
set(CUVMM_TEST_COMPILE_OPTIONS -O0)

function(cuvmm_check_label label)
  if(NOT label IN_LIST CUVMM_TEST_LABELS)
    list(JOIN CUVMM_TEST_LABELS ", " known)
    message(FATAL_ERROR "'${label}' is not a test label. There are: ${known}.")
  endif()
endfunction()

# cuvmm_add_test(NAME LABEL SOURCES ... [LIBRARIES ...]): a GoogleTest program whose tests are registered one by one, as
# LABEL.Suite.Test.
function(cuvmm_add_test name label)
  cmake_parse_arguments(PARSE_ARGV 2 test "" "" "SOURCES;LIBRARIES")
  cuvmm_check_label(${label})
  if(label STREQUAL "gpu")
    message(FATAL_ERROR "${name}: tests that need a GPU are declared with cuvmm_add_gpu_test")
  endif()
  add_executable(${name} ${test_SOURCES})
  target_link_libraries(${name} PRIVATE ${test_LIBRARIES} cuvmm_settings GTest::gtest GTest::gtest_main)
  target_compile_options(${name} PRIVATE "${CUVMM_TEST_COMPILE_OPTIONS}")
  # Listing the tests when they are run, not when they are built, keeps the build free of running programs. What is
  # disabled is left out: such bodies are there for tests that start their own program again.
  gtest_discover_tests(${name} TEST_PREFIX "${label}." TEST_FILTER "-*DISABLED_*" DISCOVERY_MODE PRE_TEST
                       DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS "${label}" TIMEOUT ${CUVMM_TEST_TIMEOUT})
endfunction()

# cuvmm_add_gpu_test(NAME SOURCES ... [LIBRARIES ...]): a GoogleTest program that needs a GPU, as the one test gpu.NAME.
# Where there is no GPU, ctest reports it as skipped and the output says why.
function(cuvmm_add_gpu_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${test_SOURCES})
  target_link_libraries(${name} PRIVATE ${test_LIBRARIES} cuvmm_settings GTest::gtest GTest::gtest_main)
  add_test(NAME gpu.${name} COMMAND "${PROJECT_SOURCE_DIR}/scripts/with_gpu" "$<TARGET_FILE:${name}>")
  set_tests_properties(gpu.${name} PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 TIMEOUT ${CUVMM_TEST_TIMEOUT})
endfunction()
