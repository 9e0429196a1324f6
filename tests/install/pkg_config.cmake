# Compiles the consumer with nothing but what pkg-config says about the installed tree.
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")
find_program(pkg_config NAMES pkg-config pkgconf REQUIRED)
set(ENV{PKG_CONFIG_PATH} "${PREFIX}/${LIBDIR}/pkgconfig")
execute_process(COMMAND "${pkg_config}" --cflags --libs cuvmm OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
set(program "${FOLDER}/pkg_config_consumer")
run("${COMPILER}" -std=c++20 -DCONSUMER_SHARES ${sanitizer_flags} "${CONSUMER}/consumer.cpp" ${flags} -o "${program}")
run("${program}")
