// Objects of the caller's whose end waits for that of the graphs which use them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

Answer invalid(std::string what) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, std::move(what)};
}

// What the end of the last reference does.
struct Destruction {
  Destruction() = default;
  Destruction(const Destruction&) = delete;
  Destruction& operator=(const Destruction&) = delete;
  Destruction(Destruction&&) = delete;
  Destruction& operator=(Destruction&&) = delete;
  ~Destruction() {
    if (destroy != nullptr) destroy(pointer);
  }

  void* pointer = nullptr;
  CUhostFn destroy = nullptr;
};

// References to one object, whose pointers may be those of another, or null.
auto same_as(const std::shared_ptr<void>& object) {
  return [&object](const std::shared_ptr<void>& other) {
    return !object.owner_before(other) && !other.owner_before(object);
  };
}

// That one call takes or gives back.
constexpr unsigned most_references = std::numeric_limits<int>::max();

std::string more_than_there_are(unsigned count, std::uint64_t references) {
  return fmt::format("count is {} of {} references", count, references);
}

}  // namespace

// Takes references of the caller's away; with the last one goes what holds the object, to `released`. The driver counts
// those of all together: what is taken beyond the caller's is taken from the graphs', with whose last one the object
// ends at once, and beyond that it never ends.
void EmulatedDriver::release_own(UserObject& object, unsigned count, std::shared_ptr<void>& released,
                                 unsigned held_meanwhile) {
  const auto destruction = std::static_pointer_cast<Destruction>(object.object.lock());
  if (destruction == nullptr) return;  // it has ended meanwhile
  const std::uint64_t beyond = count - std::min<std::uint64_t>(count, object.references);
  const auto of_graphs =
      static_cast<std::uint64_t>(destruction.use_count()) - 1 - held_meanwhile - (object.held == nullptr ? 0 : 1);
  std::shared_ptr<Destruction> now;
  if (beyond != 0 && beyond == of_graphs) {
    now = std::make_shared<Destruction>();
    now->pointer = destruction->pointer;
    now->destroy = destruction->destroy;
  }
  if (beyond != 0 && beyond >= of_graphs) destruction->destroy = nullptr;
  object.references -= count - beyond;
  if (object.references == 0) released = std::move(object.held);
  if (now != nullptr) released = std::move(now);
}

Answer EmulatedDriver::find_user_object(CUuserObject handle, unsigned count, std::shared_ptr<UserObject>* found) {
  *found = user_objects_->table.find(handle);
  if (*found == nullptr || (*found)->object.expired())
    return invalid(fmt::format("{} is no user object", fmt::ptr(handle)));
  if (count == 0 || count > most_references)
    return invalid(fmt::format("count is {}, must be from 1 to {}", count, most_references));
  return {};
}

CUresult EmulatedDriver::cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy,
                                            unsigned int initial_references, unsigned int flags) {
  return without_driver([&]() -> Answer {
    if (object == nullptr || destroy == nullptr) return invalid("object_out and destroy must not be null");
    if (initial_references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
      return invalid(
          fmt::format("initialRefcount is {}, flags are {:#x}, must be NO_DESTRUCTOR_SYNC", initial_references, flags));
    const auto made = std::make_shared<UserObject>();
    const auto destruction = std::make_shared<Destruction>();
    made->object = destruction;
    made->held = destruction;
    made->references = initial_references;
    *object = user_objects_->table.add(made);
    destruction->pointer = pointer;
    destruction->destroy = destroy;  // from here on, since nothing fails any more
    return {};
  });
}

CUresult EmulatedDriver::cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  return without_driver([&]() -> Answer {
    const std::lock_guard lock(user_objects_->mutex);
    std::shared_ptr<UserObject> found;
    if (Answer refused = find_user_object(handle, count, &found); !refused.ok()) return refused;
    found->held = found->object.lock();
    found->references += count;
    return {};
  });
}

CUresult EmulatedDriver::cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  std::shared_ptr<void> released;  // ends without the lock: the last one calls the object's destructor
  return without_driver([&]() -> Answer {
    std::unique_lock lock(user_objects_->mutex);
    std::shared_ptr<UserObject> found;
    if (Answer refused = find_user_object(handle, count, &found); !refused.ok()) return refused;
    if (const std::uint64_t references = found->references; count > references) {
      lock.unlock();  // what is told of warnings may call the driver
      if (Answer refused = machine_.tolerated(Rule::argument_valid, more_than_there_are(count, references));
          !refused.ok())
        return refused;
      lock.lock();
    }
    release_own(*found, count, released);
    return {};
  });
}

CUresult EmulatedDriver::cuGraphRetainUserObject(CUgraph graph, CUuserObject handle, unsigned int count,
                                                 unsigned int flags) {
  return without_driver([&]() -> Answer {
    const std::lock_guard lock(user_objects_->mutex);
    const auto keeper = graphs_.find(graph);
    if (keeper == nullptr || (flags & ~CU_GRAPH_USER_OBJECT_MOVE) != 0)
      return invalid(fmt::format("{} must be a graph, flags known (are {:#x})", fmt::ptr(graph), flags));
    std::shared_ptr<UserObject> found;
    if (Answer refused = find_user_object(handle, count, &found); !refused.ok()) return refused;
    keeper->kept.insert(keeper->kept.end(), count, found->object.lock());
    if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) return {};
    std::shared_ptr<void> moved;  // the graph has the object now
    release_own(*found, static_cast<unsigned>(std::min<std::uint64_t>(count, found->references)), moved);
    return {};
  });
}

CUresult EmulatedDriver::cuGraphReleaseUserObject(CUgraph graph, CUuserObject handle, unsigned int count) {
  std::vector<std::shared_ptr<void>> released;  // as above
  return without_driver([&]() -> Answer {
    std::unique_lock lock(user_objects_->mutex);
    const auto keeper = graphs_.find(graph);
    if (keeper == nullptr) return invalid(fmt::format("{} is no graph", fmt::ptr(graph)));
    std::shared_ptr<UserObject> found;
    if (Answer refused = find_user_object(handle, count, &found); !refused.ok()) return refused;
    auto object = found->object.lock();
    auto& kept = keeper->kept;
    const auto held = std::count_if(kept.begin(), kept.end(), same_as(object));
    if (held < static_cast<std::ptrdiff_t>(count)) {
      lock.unlock();  // as above
      if (Answer refused = machine_.tolerated(Rule::argument_valid, more_than_there_are(count, held)); !refused.ok())
        return refused;
      lock.lock();
    }
    unsigned left = count;
    for (auto each = kept.begin(); left != 0 && each != kept.end();) {
      each = same_as(object)(*each) ? (--left, kept.erase(each)) : std::next(each);
    }
    std::shared_ptr<void> last;
    if (left != 0) release_own(*found, left, last, 1);
    released.push_back(std::move(last));
    released.push_back(std::move(object));
    return {};
  });
}

}  // namespace cuvmm::emulator::api
