# The installed command puts the installed library under a program: here under itself, which looks for the CUDA driver. Both
# are found again where the tree is moved as a whole.
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")
set(moved "${FOLDER}/moved")
file(REMOVE_RECURSE "${moved}")
file(COPY "${PREFIX}/" DESTINATION "${moved}")
foreach(tree "${PREFIX}" "${moved}")
  if(NOT EXISTS "${tree}/${LIBDIR}/cuvmm/emulated/libcuda.so.1")
    message(FATAL_ERROR "libcuda.so.1 was not installed under ${tree}/${LIBDIR}/cuvmm/emulated")
  endif()
  set(program "${tree}/bin/cuvmm")
  run("${program}" emulate --devices 2 -- "${program}" tour "${program}" --driver cuda --devices 2 --stop 4.16.2)
  execute_process(COMMAND "${program}" emulate -- sh -c "printf %s \"\${LD_LIBRARY_PATH%%:*}\"" OUTPUT_VARIABLE folder
                  COMMAND_ERROR_IS_FATAL ANY)
  if(NOT folder STREQUAL "${tree}/${LIBDIR}/cuvmm/emulated")
    message(FATAL_ERROR "the library is taken from ${folder}, not from ${tree}")
  endif()
endforeach()
