# run(COMMAND...): runs it with its output shown, and ends the test if it fails.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed with ${status}: ${command}")
  endif()
endfunction()

# The sanitizers that the installed libraries were built with, for those who link them.
if(SANITIZE)
  set(sanitizer_flags "-fsanitize=${SANITIZE}")
else()
  set(sanitizer_flags "")
endif()
