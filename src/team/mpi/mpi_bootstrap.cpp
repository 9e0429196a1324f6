#include "cuvmm/team/mpi_bootstrap.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <list>
#include <numeric>
#include <optional>
#include <utility>

#include "backoff.hpp"
#include "keep_for_ever.hpp"
#include "refusal.hpp"

namespace cuvmm::team {

namespace {

constexpr std::string_view making = "MpiBootstrap::of";
constexpr int presence_tag = 1;
constexpr std::uint64_t most_contribution_bytes = std::uint64_t{64} << 20;
constexpr auto a_moment = std::chrono::milliseconds(20);  // after which others are told that this rank waits

Failure failure_of_mpi(std::string_view call, int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  Failure failure;
  failure.call = call;
  failure.reason = std::string(text, static_cast<std::size_t>(length));
  return failure;
}

// What every rank says first of an operation.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint64_t step = 0;  // its name's hash, and which operation of the team it is
};

std::uint64_t hash_of(std::string_view step, std::uint64_t operation) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char each : step) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return (hash ^ operation) * 0x100000001b3;
}

// What MPI may write to, or read, until the request has come to its end.
struct Buffers {
  Bytes mine;
  Bytes all;
  std::vector<int> counts;
  std::vector<int> offsets;
  Announcement announced;
  std::vector<Announcement> announcements;
  MPI_Comm communicator = MPI_COMM_NULL;
};

Result<void> require_running() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (initialised != 0 && finalised == 0) return {};
  return invalid_use(making, initialised != 0 ? "after MPI_Finalize" : "before MPI_Init",
                     "MPI is used between its initialisation and its end", "Call MPI_Init_thread first");
}

}  // namespace

class MpiBootstrap::Impl {
 public:
  Impl(MPI_Comm communicator, int rank, int size)
      : communicator_(communicator), rank_(rank), size_(size), present_(static_cast<std::size_t>(size)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (!failed_ && finalised == 0) {
      hear_of_others();
      MPI_Comm_free(&communicator_);
    }
    if (!told_.empty()) keep_for_ever(std::make_shared<std::list<Presence>>(std::move(told_)));
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  Result<Contributions> allgather(std::string_view step, std::span<const std::byte> mine, const Deadline& deadline) {
    begin("MpiBootstrap::allgather", step);
    if (failed_) return *failed_;
    if (mine.size() > most_contribution_bytes)
      return end(invalid_use(call_, arguments(),
                             fmt::format("A contribution has at most {} bytes", most_contribution_bytes),
                             "Send less at a time"));
    const auto buffers = std::make_shared<Buffers>();
    buffers->mine.assign(mine.begin(), mine.end());
    if (auto announced = announce(buffers, deadline); !announced) return end(announced.failure());
    if (auto sound = lay_out(*buffers); !sound) return end(sound.failure());
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        MPI_Iallgatherv(buffers->mine.data(), static_cast<int>(buffers->mine.size()), MPI_BYTE, buffers->all.data(),
                        buffers->counts.data(), buffers->offsets.data(), MPI_BYTE, communicator_, &request);
    if (auto done = finish(code, request, buffers, deadline); !done) return end(done.failure());
    return contributions_in(*buffers);
  }

  Result<void> barrier(std::string_view step, const Deadline& deadline) {
    begin("MpiBootstrap::barrier", step);
    if (failed_) return *failed_;
    // Nobody has the announcements of all before all have come.
    if (auto announced = announce(std::make_shared<Buffers>(), deadline); !announced) return end(announced.failure());
    return {};
  }

 private:
  void begin(std::string_view call, std::string_view step) {
    call_ = call;
    step_ = step;
    ++operation_;
  }

  [[nodiscard]] std::string arguments() const {
    return fmt::format("step = '{}', rank = {} of {}", step_, rank_, size_);
  }

  Failure end(Failure why) {
    why.call = call_;
    why.arguments = arguments();
    if (why.way_out.empty()) why.way_out = "Form a new team: this one is at an end";
    failed_ = why;
    return why;
  }

  Result<void> announce(const std::shared_ptr<Buffers>& buffers, const Deadline& deadline) {
    buffers->announced = {buffers->mine.size(), hash_of(step_, operation_)};
    buffers->announcements.resize(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Iallgather(&buffers->announced, 2, MPI_UINT64_T, buffers->announcements.data(), 2,
                                    MPI_UINT64_T, communicator_, &request);
    // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): finish() asks for its end until the deadline
    if (auto done = finish(code, request, buffers, deadline); !done) return done;
    for (std::size_t rank = 0; rank < buffers->announcements.size(); ++rank)
      if (buffers->announcements[rank].step != buffers->announced.step)
        return invalid_use(call_, {},
                           fmt::format("All ranks have to take the same steps in the same order, and rank {} is in "
                                       "another step than '{}'",
                                       rank, step_),
                           "Have all ranks of a team call the same functions");
    return {};
  }

  static Result<void> lay_out(Buffers& buffers) {
    std::uint64_t total = 0;
    for (const Announcement& each : buffers.announcements) {
      if (each.bytes > most_contribution_bytes || total + each.bytes > INT_MAX)
        return invalid_use({}, {}, "All contributions together have less than 2 GiB", "Send less at a time");
      buffers.offsets.push_back(static_cast<int>(total));
      buffers.counts.push_back(static_cast<int>(each.bytes));
      total += each.bytes;
    }
    buffers.all.resize(static_cast<std::size_t>(total));
    return {};
  }

  static Contributions contributions_in(const Buffers& buffers) {
    Contributions all;
    for (std::size_t rank = 0; rank < buffers.counts.size(); ++rank) {
      const auto begin = buffers.all.begin() + buffers.offsets[rank];
      all.emplace_back(begin, begin + buffers.counts[rank]);
    }
    return all;
  }

  // Asks for the end of a request that was begun, or not, with that code.
  Result<void> finish(int code, MPI_Request request, const std::shared_ptr<Buffers>& buffers,
                      const Deadline& deadline) {
    if (code != MPI_SUCCESS) return failure_of_mpi(call_, code);
    const Deadline moment = Deadline::in(a_moment);
    bool told = false;
    Backoff backoff;
    for (;;) {
      const bool is_last = deadline.passed();
      int done = 0;
      if (const int tested = MPI_Test(&request, &done, MPI_STATUS_IGNORE); tested != MPI_SUCCESS)
        return failure_of_mpi(call_, tested);
      if (done != 0) return {};
      hear_of_others();
      if (is_last) break;
      if (moment.passed() && !std::exchange(told, true)) tell_of_presence();
      backoff.pause(deadline.time());
    }
    keep_for_ever(buffers);
    return others_are_missing();
  }

  // --- Who is there. Small messages, which MPI takes without waiting for their receiver.

  struct Presence {
    std::uint64_t operation = 0;
    std::vector<MPI_Request> requests;
  };

  void tell_of_presence() {
    Presence& presence = told_.emplace_back();
    presence.operation = operation_;
    presence.requests.assign(static_cast<std::size_t>(size_), MPI_REQUEST_NULL);
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_)
        MPI_Isend(&presence.operation, 1, MPI_UINT64_T, rank, presence_tag, communicator_,
                  &presence.requests[static_cast<std::size_t>(rank)]);
  }

  void hear_of_others() {
    for (int there = 1; there != 0;) {
      MPI_Status status;
      if (MPI_Iprobe(MPI_ANY_SOURCE, presence_tag, communicator_, &there, &status) != MPI_SUCCESS || there == 0) break;
      std::uint64_t operation = 0;
      if (MPI_Recv(&operation, 1, MPI_UINT64_T, status.MPI_SOURCE, presence_tag, communicator_, MPI_STATUS_IGNORE) !=
          MPI_SUCCESS)
        break;
      auto& last = present_[static_cast<std::size_t>(status.MPI_SOURCE)];
      last = std::max(last, operation);
    }
    told_.remove_if([](Presence& each) {
      int done = 0;
      return MPI_Testall(static_cast<int>(each.requests.size()), each.requests.data(), &done, MPI_STATUSES_IGNORE) ==
                 MPI_SUCCESS &&
             done != 0;
    });
  }

  [[nodiscard]] Failure others_are_missing() const {
    std::vector<int> missing;
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_ && present_[static_cast<std::size_t>(rank)] < operation_) missing.push_back(rank);
    Failure failure;
    failure.kind = ErrorKind::timed_out;
    failure.reason = missing.empty() ? "all ranks came to this step, and MPI did not finish it before the deadline"
                                     : fmt::format("before the deadline nothing was heard of rank {}",
                                                   fmt::join(missing, ", rank "));
    failure.way_out = "See what keeps them, or give the step more time; then form a new team";
    return failure;
  }

  MPI_Comm communicator_;
  int rank_;
  int size_;
  std::string call_;
  std::string step_;
  std::uint64_t operation_ = 0;
  std::vector<std::uint64_t> present_;  // by rank: the last operation that it said it waits in
  std::list<Presence> told_;
  std::optional<Failure> failed_;
};

MpiBootstrap::MpiBootstrap(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
MpiBootstrap::~MpiBootstrap() = default;

std::unique_ptr<MpiBootstrap> MpiBootstrap::world(const Deadline& deadline) {
  require_running().value();
  return of(MPI_Comm_c2f(MPI_COMM_WORLD), deadline);
}

std::unique_ptr<MpiBootstrap> MpiBootstrap::of(int communicator, const Deadline& deadline) {
  require_running().value();
  const auto duplicate = std::make_shared<Buffers>();
  MPI_Request request = MPI_REQUEST_NULL;
  if (const int code = MPI_Comm_idup(MPI_Comm_f2c(communicator), &duplicate->communicator, &request);
      code != MPI_SUCCESS)
    raise(failure_of_mpi(making, code));
  Backoff backoff;
  for (int done = 0; done == 0;) {
    const bool is_last = deadline.passed();
    if (const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE); code != MPI_SUCCESS)
      raise(failure_of_mpi(making, code));
    if (done != 0) break;
    if (is_last) {
      keep_for_ever(duplicate);
      Failure failure;
      failure.kind = ErrorKind::timed_out;
      failure.call = making;
      failure.reason = "not all ranks of the communicator did the same before the deadline";
      failure.way_out = "Have all ranks make the bootstrap, or give them more time";
      raise(failure);
    }
    backoff.pause(deadline.time());
  }
  MPI_Comm_set_errhandler(duplicate->communicator, MPI_ERRORS_RETURN);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(duplicate->communicator, &rank);
  MPI_Comm_size(duplicate->communicator, &size);
  return std::unique_ptr<MpiBootstrap>(new MpiBootstrap(std::make_unique<Impl>(duplicate->communicator, rank, size)));
}

int MpiBootstrap::rank() const noexcept {
  return impl_->rank();
}
int MpiBootstrap::size() const noexcept {
  return impl_->size();
}

Result<Contributions> MpiBootstrap::try_allgather(std::string_view step, std::span<const std::byte> mine,
                                                  const Deadline& deadline) {
  return impl_->allgather(step, mine, deadline);
}

Result<void> MpiBootstrap::try_barrier(std::string_view step, const Deadline& deadline) {
  return impl_->barrier(step, deadline);
}

}  // namespace cuvmm::team
