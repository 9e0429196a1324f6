#include <cuvmm/error.hpp>
int main() {
  return cuvmm::to_string(cuvmm::ErrorKind::timed_out).empty() ? 1 : 0;
}
