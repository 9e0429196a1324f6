// The thread that serves those who attach to published ranges.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "cuvmm/sharing/range_publisher.hpp"
#include "sharing/publication.hpp"

namespace cuvmm::sharing {

// One connection. Its states: connected (publication is null), offered, attached; the end takes it out of the list.
struct Lease {
  Lease(DescriptorSocket connection, const Deadline& speak_until)
      : socket(std::move(connection)), first_request(speak_until) {}

  DescriptorSocket socket;
  Deadline first_request;
  std::shared_ptr<Publication> publication{};
  AccessRights rights = AccessRights::none;
  bool of_another_node = false;  // so that it gets fabric handles
  bool mapped = false;
  std::uint32_t chunks = 0;
  std::optional<Message> unserved{};  // a request for chunks that waits for room for descriptors on their way
  bool news = false;                  // the publication has changed since the peer was told
};

// All that happens in a connection happens in the thread of the service, under its mutex: each message is one packet,
// sent and received at once or not at all, so that nobody is waited for. Only poll() waits, without the mutex.
class RangeService {
 public:
  RangeService(const RangePublisherOptions& options, std::optional<DescriptorListener> listener);
  RangeService(const RangeService&) = delete;
  RangeService& operator=(const RangeService&) = delete;
  RangeService(RangeService&&) = delete;
  RangeService& operator=(RangeService&&) = delete;
  ~RangeService() { stop(); }

  // Ends the thread and all connections. Once.
  void stop() noexcept;

  // Offers it under its name, which gives it its generation.
  Result<void> open(const std::shared_ptr<Publication>& publication);
  Result<void> extend(Publication& publication, std::vector<OfferedChunk> chunks, std::uint64_t bytes);
  // Where the chunks that are offered begin, from the beginning of what is published.
  [[nodiscard]] std::set<std::uint64_t> offered_offsets(const Publication& publication) const;
  // Offers it no more, and tells those who have it; waits for nobody.
  void close(Publication& publication, Withdrawal why) noexcept;
  // Waits until nobody has it.
  Result<void> wait_for_detached(const Publication& publication, const Deadline& deadline);
  // What it was made of, for the caller to destroy.
  struct Remains {
    std::vector<OfferedChunk> chunks;
    RangePin pin;
    RangeObservation watch;
  };
  [[nodiscard]] Remains take_content(Publication& publication) noexcept;

  void serve(DescriptorSocket connection);

  [[nodiscard]] Standing standing(const Publication& publication) const;
  [[nodiscard]] std::vector<Attached> attached_to(const Publication& publication) const;
  [[nodiscard]] std::size_t connected() const;

 private:
  using Leases = std::list<Lease>;

  void run() noexcept;
  void wait_for_something();
  void round();
  void accept_newcomers();
  [[nodiscard]] bool serve_lease(Lease& lease);  // whether it goes on
  [[nodiscard]] bool take_message(Lease& lease, const Message& message);
  [[nodiscard]] std::optional<Failure> wrong_with(const AttachRequest& request, const Publication& publication) const;
  [[nodiscard]] bool take_attach(Lease& lease, const Message& message);
  [[nodiscard]] bool take_fetch(Lease& lease, const Message& message);
  [[nodiscard]] bool take_mapped(Lease& lease, const Message& message);
  [[nodiscard]] bool refuse(Lease& lease, const Message& request, const Failure& failure);
  [[nodiscard]] bool tell_news(Lease& lease);
  [[nodiscard]] static bool end(Lease& lease, const Failure& why);
  [[nodiscard]] static bool end_unserved(Lease& lease, const std::exception& why) noexcept;
  [[nodiscard]] static bool answered(Lease& lease, const Result<void>& sent);
  [[nodiscard]] Failure said_nothing() const;
  [[nodiscard]] std::size_t leases_of_publications() const noexcept;
  [[nodiscard]] std::vector<const Lease*> leases_of(const Publication& publication) const;
  void wake() noexcept;
  void forget_thread_of_parent() noexcept;

  const RangePublisherOptions options_;
  UniqueDescriptor wake_;
  int process_;

  mutable std::mutex mutex_;
  std::condition_variable ended_;  // a lease has
  std::optional<DescriptorListener> listener_;
  Deadline listener_rests_until_ = Deadline::at({});
  std::map<std::string, std::shared_ptr<Publication>, std::less<>> open_;
  std::map<std::string, std::uint64_t, std::less<>> generations_;
  Leases leases_;
  bool stopping_ = false;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace cuvmm::sharing
