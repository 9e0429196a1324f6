#include "cuvmm/pool/c_tags.h"

#include <string>

#include "cuvmm/pool/tagged_allocations.hpp"
#include "pool/c_calls.hpp"

using cuvmm::GroupState;
using cuvmm::SleepingContent;
using cuvmm::TaggedAllocations;
using cuvmm::pool::address_of;
using cuvmm::pool::guarded;
using cuvmm::pool::required;

static_assert(static_cast<int>(SleepingContent::discarded) == CUVMM_CONTENT_DISCARDED);
static_assert(static_cast<int>(SleepingContent::pinned) == CUVMM_CONTENT_PINNED);
static_assert(static_cast<int>(SleepingContent::pageable) == CUVMM_CONTENT_PAGEABLE);
static_assert(static_cast<int>(SleepingContent::file) == CUVMM_CONTENT_FILE);
static_assert(static_cast<int>(GroupState::awake) == CUVMM_AWAKE);
static_assert(static_cast<int>(GroupState::asleep) == CUVMM_ASLEEP);
static_assert(static_cast<int>(GroupState::partly_asleep) == CUVMM_PARTLY_ASLEEP);

struct cuvmm_tagged {
  TaggedAllocations allocations;
};

namespace {

TaggedAllocations& allocations_of(cuvmm_tagged* handle, std::string_view call) {
  return required(handle, call, "tagged").allocations;
}

std::string tag_of(const char* tag, std::string_view call) {
  return &required(tag, call, "tag");
}

SleepingContent content_of(int content, std::string_view call) {
  if (content < CUVMM_CONTENT_DISCARDED || content > CUVMM_CONTENT_FILE)
    raise(cuvmm::invalid_use(call, fmt::format("content = {}", content), "There is no such place for the content",
                             "Pass one of cuvmm_sleeping_content"));
  return static_cast<SleepingContent>(content);
}

}  // namespace

int cuvmm_tagged_create(cuvmm_pool* pool, cuvmm_tagged** tagged) {
  constexpr std::string_view call = "cuvmm_tagged_create";
  return guarded(call, [&] {
    cuvmm_tagged*& made = required(tagged, call, "tagged");
    made = new cuvmm_tagged{TaggedAllocations::create(required(pool, call, "pool").pool)};
  });
}

void cuvmm_tagged_destroy(cuvmm_tagged* tagged) {
  if (!cuvmm::pool::in_forked_child()) delete tagged;
}

int cuvmm_tagged_allocate(cuvmm_tagged* tagged, const char* tag, size_t bytes, CUstream_st* stream, int content,
                          void** address) {
  constexpr std::string_view call = "cuvmm_tagged_allocate";
  return guarded(call, [&] {
    void*& given = required(address, call, "address");
    given = allocations_of(tagged, call)
                .allocate(tag_of(tag, call), bytes, stream, {.content = content_of(content, call)})
                .as_pointer();
  });
}

int cuvmm_tagged_used_on(cuvmm_tagged* tagged, void* address, CUstream_st* stream) {
  constexpr std::string_view call = "cuvmm_tagged_used_on";
  return guarded(call, [&] { allocations_of(tagged, call).used_on(address_of(address), stream); });
}

int cuvmm_tagged_free(cuvmm_tagged* tagged, void* address) {
  constexpr std::string_view call = "cuvmm_tagged_free";
  return guarded(call, [&] { allocations_of(tagged, call).free(address_of(address)); });
}

int cuvmm_tagged_sleep(cuvmm_tagged* tagged, const char* tag, size_t* given) {
  constexpr std::string_view call = "cuvmm_tagged_sleep";
  return guarded(call, [&] {
    const auto report = allocations_of(tagged, call).sleep(tag_of(tag, call));
    if (given != nullptr) *given = report.bytes_given_back;
  });
}

int cuvmm_tagged_wake(cuvmm_tagged* tagged, const char* tag) {
  constexpr std::string_view call = "cuvmm_tagged_wake";
  return guarded(call, [&] { allocations_of(tagged, call).wake(tag_of(tag, call)); });
}

int cuvmm_tagged_state(cuvmm_tagged* tagged, const char* tag, int* state) {
  constexpr std::string_view call = "cuvmm_tagged_state";
  return guarded(call, [&] {
    required(state, call, "state") = static_cast<int>(allocations_of(tagged, call).state(tag_of(tag, call)));
  });
}

int cuvmm_tagged_set_budget(cuvmm_tagged* tagged, const char* tag, size_t bytes) {
  constexpr std::string_view call = "cuvmm_tagged_set_budget";
  return guarded(call, [&] { allocations_of(tagged, call).set_budget(tag_of(tag, call), bytes); });
}

int cuvmm_tagged_statistics(cuvmm_tagged* tagged, const char* tag, cuvmm_tag_numbers* numbers) {
  constexpr std::string_view call = "cuvmm_tagged_statistics";
  return guarded(call, [&] {
    const cuvmm::TagStatistics now = allocations_of(tagged, call).statistics(tag_of(tag, call));
    required(numbers, call, "numbers") = {now.live_bytes,   now.live_allocations, now.rounded_bytes,
                                          now.asleep_bytes, now.peak_live_bytes,  now.peak_rounded_bytes,
                                          now.budget};
  });
}
