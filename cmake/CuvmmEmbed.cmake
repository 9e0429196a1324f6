# Run as a script: writes a C++ source file that defines NAMESPACE::NAME_bytes, a zero-terminated array with the content
# of INPUT, aligned to 8 bytes, and NAME_size, its size without the zero.
file(READ "${INPUT}" digits HEX)
file(SIZE "${INPUT}" size)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${digits}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}" "// Generated from ${INPUT}.
#include <cstddef>
namespace ${NAMESPACE} {
extern const unsigned char ${NAME}_bytes[];
extern const std::size_t ${NAME}_size;
alignas(8) const unsigned char ${NAME}_bytes[] = {
${bytes}0};
const std::size_t ${NAME}_size = ${size};
}  // namespace ${NAMESPACE}
")
