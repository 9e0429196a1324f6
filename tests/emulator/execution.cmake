# Tests of the emulator's execution engine.
find_package(GTest REQUIRED)
include(GoogleTest)

add_executable(execution_test
  emulator/execution_capture_test.cpp
  emulator/execution_context_test.cpp
  emulator/execution_event_test.cpp
  emulator/execution_graph_test.cpp
  emulator/execution_stepped_test.cpp
  emulator/execution_stream_test.cpp
  emulator/execution_threads_test.cpp)
target_link_libraries(execution_test PRIVATE cuvmm_emulator_execution cuvmm_settings GTest::gtest_main)
gtest_discover_tests(execution_test PROPERTIES LABELS emulator DISCOVERY_TIMEOUT 60)
