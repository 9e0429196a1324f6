// A value that the processes of a test share.
#pragma once

#include <sys/mman.h>

#include <new>
#include <stdexcept>

namespace cuvmm::tests {

// Made before the processes are forked. Its content has to work between processes: lock-free atomics.
template <class Content>
class SharedState {
 public:
  SharedState() {
    void* const memory = ::mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
    content_ = new (memory) Content;
  }
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;
  SharedState(SharedState&&) = delete;
  SharedState& operator=(SharedState&&) = delete;
  ~SharedState() { ::munmap(content_, sizeof(Content)); }

  Content* operator->() const noexcept { return content_; }

 private:
  Content* content_ = nullptr;
};

}  // namespace cuvmm::tests
