# Configures the consumer against the installed tree. With REFUSAL, a pattern, that has to fail with such a message;
# without, it is built and run.
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")
string(MD5 case "${OPTIONS}")  # tests run side by side
set(build "${FOLDER}/find_package/${case}")
file(REMOVE_RECURSE "${build}")
set(configure "${CMAKE_COMMAND}" -S "${CONSUMER}" -B "${build}" -G Ninja "-DCMAKE_CXX_COMPILER=${COMPILER}"
              "-DCMAKE_PREFIX_PATH=${PREFIX}" "-DCMAKE_CXX_FLAGS=${sanitizer_flags}" ${OPTIONS})
if(REFUSAL)
  execute_process(COMMAND ${configure} RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(status EQUAL 0)
    message(FATAL_ERROR "find_package accepted what it has to refuse")
  elseif(NOT said MATCHES "${REFUSAL}")
    message(FATAL_ERROR "find_package refused, but said:\n${said}")
  endif()
else()
  run(${configure})
  run("${CMAKE_COMMAND}" --build "${build}")
  run("${build}/consumer")
endif()
