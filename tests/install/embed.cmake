# A project that takes the source in by FetchContent, and one that takes it in by add_subdirectory, which is built and run.
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")
set(build "${FOLDER}/embedding")
foreach(fetches ON OFF)
  run("${CMAKE_COMMAND}" -S "${EMBEDDING}" -B "${build}-${fetches}" -G Ninja "-DCMAKE_CXX_COMPILER=${COMPILER}"
      "-DCUVMM_SOURCE=${SOURCE}" "-DCONSUMER_FETCHES=${fetches}" -DCUVMM_CUDA_TOOLKIT=NONE
      "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
      "-DCMAKE_CXX_FLAGS_RELEASE=${RELEASE_FLAGS}" -DCMAKE_CXX_EXTENSIONS=OFF
      "-DCUVMM_WARNINGS_AS_ERRORS=${WARNINGS_AS_ERRORS}")
endforeach()
run("${CMAKE_COMMAND}" --build "${build}-OFF" --target consumer)
run("${build}-OFF/consumer")
