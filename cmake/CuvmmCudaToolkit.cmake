# Looks for a CUDA toolkit. Nothing of the project needs one; where it is found, kernels for real GPUs are embedded and
# the driver ABI that we declare is compared with cuda.h.
#
# CUVMM_CUDA_TOOLKIT: AUTO (CUDA_PATH, CUDA_HOME, nvcc on the PATH, /usr/local/cuda), NONE, or the toolkit's folder.
#
# Sets CUVMM_NVCC (the compiler) and CUVMM_CUDA_INCLUDE_DIR (where cuda.h is), each empty where it was not found, and
# CUVMM_CUDA_VERSION ("13.0", nvcc's).
set(CUVMM_CUDA_TOOLKIT "AUTO" CACHE STRING "The CUDA toolkit to use: AUTO, NONE or its folder")

# The result variables are found anew at every configuration, so that a changed CUVMM_CUDA_TOOLKIT takes effect.
function(cuvmm_find_cuda_toolkit)
  set(nvcc "")
  set(include_dir "")
  set(version "")
  if(CUVMM_CUDA_TOOLKIT STREQUAL "AUTO")
    set(folders "$ENV{CUDA_PATH}" "$ENV{CUDA_HOME}" /usr/local/cuda)
    list(REMOVE_ITEM folders "")
    find_program(found_nvcc nvcc HINTS ${folders} PATH_SUFFIXES bin NO_CACHE)
    if(found_nvcc)
      file(REAL_PATH "${found_nvcc}" resolved)
      cmake_path(GET resolved PARENT_PATH bin)
      cmake_path(GET bin PARENT_PATH beside_nvcc)
      list(PREPEND folders "${beside_nvcc}")
    endif()
    find_path(found_include cuda.h HINTS ${folders} PATH_SUFFIXES include targets/x86_64-linux/include NO_CACHE)
  elseif(NOT CUVMM_CUDA_TOOLKIT STREQUAL "NONE")
    find_program(found_nvcc nvcc PATHS "${CUVMM_CUDA_TOOLKIT}/bin" NO_DEFAULT_PATH NO_CACHE)
    find_path(found_include cuda.h PATHS "${CUVMM_CUDA_TOOLKIT}/include"
              "${CUVMM_CUDA_TOOLKIT}/targets/x86_64-linux/include" NO_DEFAULT_PATH NO_CACHE)
    if(NOT found_nvcc AND NOT found_include)
      message(FATAL_ERROR "CUVMM_CUDA_TOOLKIT is '${CUVMM_CUDA_TOOLKIT}', where there is neither bin/nvcc nor "
                          "include/cuda.h. Give a toolkit's folder, AUTO or NONE.")
    endif()
  endif()
  if(found_nvcc)
    execute_process(COMMAND "${found_nvcc}" --version OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND said MATCHES "release ([0-9]+\\.[0-9]+)")
      set(nvcc "${found_nvcc}")
      set(version "${CMAKE_MATCH_1}")
    else()
      message(WARNING "${found_nvcc} does not run: going on as without a CUDA compiler")
    endif()
  endif()
  if(found_include)
    set(include_dir "${found_include}")
  endif()
  set(CUVMM_NVCC "${nvcc}" PARENT_SCOPE)
  set(CUVMM_CUDA_VERSION "${version}" PARENT_SCOPE)
  set(CUVMM_CUDA_INCLUDE_DIR "${include_dir}" PARENT_SCOPE)
endfunction()

cuvmm_find_cuda_toolkit()
if(CUVMM_NVCC)
  message(STATUS "CUDA compiler: ${CUVMM_NVCC} (${CUVMM_CUDA_VERSION})")
else()
  message(STATUS "CUDA compiler: none; programs will run kernels on the emulated driver only")
endif()
if(CUVMM_CUDA_INCLUDE_DIR)
  message(STATUS "cuda.h: ${CUVMM_CUDA_INCLUDE_DIR}")
else()
  message(STATUS "cuda.h: none; the declared driver ABI is not compared with it")
endif()
