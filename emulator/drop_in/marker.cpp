// By what programs can tell that this is not NVIDIA's driver.
#include "emulator/drop_in/exported.hpp"

extern "C" {

// One line for people. No CUDA driver has a function of this name.
CUVMM_EXPORT const char* cuvmm_emulated_driver() {
  return "cuvmm's emulated driver";
}

// The machine on which the process is, and its node; null before cuInit, or where that failed. The text stays.
CUVMM_EXPORT const char* cuvmm_emulated_place(int* node) {
  return cuvmm::emulator::drop_in::process_place(node);
}

// Why the calling thread's last call failed, as driver::Interface::explanation tells it; null before cuInit. The text
// stays until the thread asks again.
CUVMM_EXPORT const char* cuvmm_emulated_explanation() {
  return cuvmm::emulator::drop_in::process_explanation();
}

}  // extern "C"
