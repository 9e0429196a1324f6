// A program that loads the driver while it runs, as libraries do that are to work without one.
#include <dlfcn.h>

#include <array>
#include <thread>
#include <vector>

#include "client.hpp"

namespace cuvmm::tests {
namespace {

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

using Initialise = CUresult(unsigned);
using GetInteger = CUresult(int*);
using FirstLookup = CUresult(const char*, void**, int, unsigned long long);
using SecondLookup = CUresult(const char*, void**, int, unsigned long long, CUdriverProcAddressQueryResult*);

// Whatever else is installed: no call of these cases is to reach a real driver.
int only_the_emulated_driver() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  CHECK(::dlsym(library, "cuvmm_emulated_driver") != nullptr);
  return 0;
}

int by_name() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  void* const the_same = ::dlopen("libcuda.so", RTLD_NOW | RTLD_LOCAL);  // as some ask for it
  CHECK(the_same == library);
  CHECK(::dlsym(library, "cuMemMap") != nullptr);
  CHECK(::dlsym(library, "cuMemMapAsOnNoDriver") == nullptr);
  return 0;
}

// The process's driver outlives what is closed, as the real one does, and threads may be in it meanwhile.
int closed_and_opened_again() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  auto* const get_count = find<GetInteger>(library, "cuDeviceGetCount");
  int count = 0;
  CHECK(get_count(&count) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(find<Initialise>(library, "cuInit")(0) == CUDA_SUCCESS);
  CHECK(::dlclose(library) == 0);
  CHECK(get_count(&count) == CUDA_SUCCESS);
  for (int time = 0; time < 3; ++time) {
    void* const again = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(again != nullptr);
    CHECK(find<GetInteger>(again, "cuDeviceGetCount")(&count) == CUDA_SUCCESS);
    CHECK(count == 2);
    CHECK(::dlclose(again) == 0);
  }
  return 0;
}

int opened_by_many_threads() {
  std::array<int, 8> failures{};
  std::vector<std::thread> threads;
  threads.reserve(failures.size());
  for (int& failure : failures)
    threads.emplace_back([&failure] {
      for (int time = 0; time < 20; ++time) {
        void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        int count = 0;
        if (library == nullptr || find<Initialise>(library, "cuInit")(0) != CUDA_SUCCESS ||
            find<GetInteger>(library, "cuDeviceGetCount")(&count) != CUDA_SUCCESS || ::dlclose(library) != 0)
          failure = 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const int failure : failures) CHECK(failure == 0);
  return 0;
}

constexpr auto found = CU_GET_PROC_ADDRESS_SUCCESS;
constexpr auto unknown = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
constexpr auto too_old = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;

constexpr unsigned long long default_stream = 0;
constexpr unsigned long long legacy_stream_flag = 1;
constexpr unsigned long long per_thread_stream_flag = 2;

// In the order of the call. NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct Asked {
  const char* name;
  int version;
  unsigned long long flags;
  CUdriverProcAddressQueryResult status;
  const char* symbol;  // what is to be found; null for nothing
};

constexpr Asked questions[] = {
    {"cuInit", 2000, default_stream, found, "cuInit"},
    {"cuInit", 1990, default_stream, too_old, nullptr},
    {"cuMemAlloc", 2000, default_stream, found, "cuMemAlloc"},
    {"cuMemAlloc", 3010, default_stream, found, "cuMemAlloc"},
    {"cuMemAlloc", 3020, default_stream, found, "cuMemAlloc_v2"},
    {"cuMemAlloc", 13000, default_stream, found, "cuMemAlloc_v2"},
    {"cuMemAlloc_v2", 13000, default_stream, unknown, nullptr},
    {"cuMemMap", 10010, default_stream, too_old, nullptr},
    {"cuMemMap", 10020, default_stream, found, "cuMemMap"},
    {"cuCtxCreate", 11030, default_stream, found, "cuCtxCreate_v2"},
    {"cuCtxCreate", 11040, default_stream, found, "cuCtxCreate_v3"},
    {"cuCtxCreate", 12050, default_stream, found, "cuCtxCreate_v4"},
    {"cuStreamSynchronize", 13000, default_stream, found, "cuStreamSynchronize"},
    {"cuStreamSynchronize", 13000, legacy_stream_flag, found, "cuStreamSynchronize"},
    {"cuStreamSynchronize", 13000, per_thread_stream_flag, found, "cuStreamSynchronize_ptsz"},
    {"cuStreamSynchronize", 6050, per_thread_stream_flag, found, "cuStreamSynchronize"},
    {"cuMemcpyHtoD", 13000, per_thread_stream_flag, found, "cuMemcpyHtoD_v2_ptds"},
    {"cuStreamWaitValue32", 10000, per_thread_stream_flag, found, "cuStreamWaitValue32_ptsz"},
    {"cuStreamWaitValue32", 11070, per_thread_stream_flag, found, "cuStreamWaitValue32_v2_ptsz"},
    {"cuMemMap", 13000, per_thread_stream_flag, found, "cuMemMap"},
    {"cuMemAllocAsync", 11020, default_stream, found, "cuMemAllocAsync"},
    {"cuGetProcAddress", 11030, default_stream, found, "cuGetProcAddress"},
    {"cuGetProcAddress", 12000, default_stream, found, "cuGetProcAddress_v2"},
    {"cuMemAllocTwice", 13000, default_stream, unknown, nullptr},
    {"", 13000, default_stream, unknown, nullptr},
};

int answered(void* library, const Asked& asked) {
  std::fprintf(stderr, "%s %d %llu\n", asked.name, asked.version, asked.flags);
  void* const expected = asked.symbol == nullptr ? nullptr : ::dlsym(library, asked.symbol);
  CHECK((expected != nullptr) == (asked.symbol != nullptr));
  auto* const first = find<FirstLookup>(library, "cuGetProcAddress");
  auto* const second = find<SecondLookup>(library, "cuGetProcAddress_v2");
  void* function = library;  // something else than what is to come
  auto status = static_cast<CUdriverProcAddressQueryResult>(-1);
  CHECK(second(asked.name, &function, asked.version, asked.flags, &status) == CUDA_SUCCESS);
  CHECK(status == asked.status);
  CHECK(function == expected);
  function = library;
  CHECK(second(asked.name, &function, asked.version, asked.flags, nullptr) == CUDA_SUCCESS);
  CHECK(function == expected);
  function = library;
  CHECK(first(asked.name, &function, asked.version, asked.flags) ==
        (asked.status == found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND));
  CHECK(function == (asked.status == found ? expected : library));  // the first form leaves it alone
  return 0;
}

int refused(void* library) {
  auto* const second = find<SecondLookup>(library, "cuGetProcAddress_v2");
  void* function = nullptr;
  auto status = found;
  CHECK(second("cuInit", &function, 13010, 0, &status) == CUDA_ERROR_INVALID_VALUE);
  CHECK(second("cuNothing", &function, 13010, 0, &status) == CUDA_ERROR_INVALID_VALUE);
  CHECK(second("cuInit", &function, 13000, 4, &status) == CUDA_ERROR_INVALID_VALUE);
  CHECK(second(nullptr, &function, 13000, 0, &status) == CUDA_ERROR_INVALID_VALUE);
  CHECK(second("cuInit", nullptr, 13000, 0, &status) == CUDA_ERROR_INVALID_VALUE);
  CHECK(second("cuInit", &function, 13000, 0, &status) == CUDA_SUCCESS);
  return 0;
}

// Before and after initialisation alike.
int looked_up() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  for (int time = 0; time < 2; ++time) {
    for (const Asked& asked : questions) CHECK(answered(library, asked) == 0);
    CHECK(refused(library) == 0);
    CHECK(find<Initialise>(library, "cuInit")(0) == CUDA_SUCCESS);
  }
  return 0;
}

// On a machine whose driver is CUDA 13.1's: one name for both forms.
int looked_up_in_13_1() {
  ::setenv("CUVMM_EMULATOR", "profile=h200-590", 1);
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  CHECK(find<Initialise>(library, "cuInit")(0) == CUDA_SUCCESS);
  for (const Asked& asked : {Asked{"cuMulticastBindMem", 12010, default_stream, found, "cuMulticastBindMem"},
                             Asked{"cuMulticastBindMem", 13000, default_stream, found, "cuMulticastBindMem"},
                             Asked{"cuMulticastBindMem", 13010, default_stream, found, "cuMulticastBindMem_v2"},
                             Asked{"cuMulticastBindAddr", 13000, default_stream, found, "cuMulticastBindAddr"},
                             Asked{"cuMulticastBindAddr", 13010, default_stream, found, "cuMulticastBindAddr_v2"}})
    CHECK(answered(library, asked) == 0);
  return 0;
}

constexpr Case cases[] = {
    {"by_name", by_name},
    {"closed_and_opened_again", closed_and_opened_again},
    {"opened_by_many_threads", opened_by_many_threads},
    {"looked_up", looked_up},
    {"looked_up_in_13_1", looked_up_in_13_1},
};

}  // namespace
}  // namespace cuvmm::tests

int main(int count, char** words) {
  if (cuvmm::tests::only_the_emulated_driver() != 0) return 99;
  return cuvmm::tests::run_case(cuvmm::tests::cases, count, words);
}
