#include "emulator/drop_in/process_driver.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>

#include "driver/fork_count.hpp"
#include "emulator/api/emulated_driver.hpp"
#include "emulator/configuration.hpp"
#include "emulator/emulated_driver.hpp"
#include "emulator/thread_storage.hpp"

namespace cuvmm::emulator::drop_in {
namespace {

// A driver that is kept until the process is gone, and in which process it was made.
struct Kept {
  std::shared_ptr<driver::Interface> driver;
  unsigned made_at_fork_count;
  driver::EmulatedPlace place;
};

// What the thread was told last.
struct LastTold {
  std::string text;
};

// Nothing here is destroyed: neither type has a destructor that does anything.
constinit std::mutex making;
constinit std::atomic<const Kept*> initialised{nullptr};
constinit std::atomic<const Kept*> not_initialised{nullptr};

// A fork while another thread makes a driver must not leave the child a lock that nobody opens. This is arranged while
// the library is loaded: done later, it would itself be something that a fork may come between.
[[maybe_unused]] const int forks_wait =
    ::pthread_atfork([] { making.lock(); }, [] { making.unlock(); }, [] { making.unlock(); });

const Kept* made(const Configuration& configuration) {
  auto driver = make_emulated_driver(configuration);
  auto place = driver->emulated_place().value_or(driver::EmulatedPlace{});
  auto kept = std::make_unique<Kept>(Kept{std::move(driver), driver::fork_count(), std::move(place)});
  return kept.release();
}

api::EmulatedDriver& emulated(const Kept& kept) {
  return dynamic_cast<api::EmulatedDriver&>(*kept.driver);
}

// What the driver says of itself before it is initialised (its version) is the configured machine's, where there is
// one.
Configuration configuration_so_far() {
  try {
    Configuration configuration = Configuration::of_program();
    configuration.machine.clear();  // asking for a version joins no machine
    configuration.node = 0;
    configuration.nodes = 1;
    return configuration;
  } catch (const std::invalid_argument&) {
    return {};  // cuInit will tell what is wrong
  }
}

abi::CUresult initialise_once() {
  const std::lock_guard lock(making);
  if (const Kept* const kept = initialised.load(std::memory_order_acquire); kept != nullptr)
    return kept->made_at_fork_count == driver::fork_count() ? abi::CUDA_SUCCESS : abi::CUDA_ERROR_NOT_INITIALIZED;
  const Kept* const kept = made(Configuration::of_program());
  if (const Kept* const before = not_initialised.load(std::memory_order_acquire); before != nullptr)
    emulated(*kept).share_user_objects_of(emulated(*before));
  const abi::CUresult result = kept->driver->cuInit(0);
  initialised.store(kept, std::memory_order_release);
  return result;
}

}  // namespace

driver::Interface& process_driver() {
  if (const Kept* const kept = initialised.load(std::memory_order_acquire); kept != nullptr) return *kept->driver;
  if (const Kept* const kept = not_initialised.load(std::memory_order_acquire); kept != nullptr) return *kept->driver;
  const std::lock_guard lock(making);
  const Kept* kept = not_initialised.load(std::memory_order_acquire);
  if (kept == nullptr) {
    kept = made(configuration_so_far());
    not_initialised.store(kept, std::memory_order_release);
  }
  return *kept->driver;
}

const char* process_place(int* node) noexcept {
  const Kept* const kept = initialised.load(std::memory_order_acquire);
  if (kept == nullptr) return nullptr;
  *node = kept->place.node;
  return kept->place.machine.c_str();
}

const char* process_explanation() noexcept try {
  const Kept* const kept = initialised.load(std::memory_order_acquire);
  if (kept == nullptr) return nullptr;
  std::string& text = of_this_thread<LastTold>().text;
  text = kept->driver->explanation();
  return text.c_str();
} catch (const std::bad_alloc&) {
  return nullptr;
}

abi::CUresult initialise(unsigned flags) noexcept {
  if (flags != 0) return abi::CUDA_ERROR_INVALID_VALUE;
  try {
    return initialise_once();
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "cuvmm %s. There is no emulated device until this is corrected.\n", error.what());
    return abi::CUDA_ERROR_NO_DEVICE;
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "cuvmm emulated driver: %s\n", error.what());
    return abi::CUDA_ERROR_OPERATING_SYSTEM;
  } catch (const std::bad_alloc&) {
    return abi::CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return abi::CUDA_ERROR_OPERATING_SYSTEM;
  }
}

}  // namespace cuvmm::emulator::drop_in
