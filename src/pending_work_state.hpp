// What PendingWork waits for.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuvmm/stream_uses.hpp"
#include "event_pool.hpp"
#include "relaxed_capture_mode.hpp"
#include "remembered_stream.hpp"

namespace cuvmm {

// A capture whose graph may use some memory; shared by all who wait for it.
struct HeldCapture {
  explicit HeldCapture(CaptureId id_) noexcept : id(id_) {}

  const CaptureId id;
  std::atomic<bool> gone = false;
};

// RelaxedCaptureMode, from the first time that it is needed.
class RelaxedOnDemand {
 public:
  explicit RelaxedOnDemand(driver::Interface& interface) noexcept : interface_(interface) {}

  [[nodiscard]] abi::CUresult relax() {
    if (!relaxed_) relaxed_.emplace(interface_);
    return relaxed_->answer();
  }

 private:
  driver::Interface& interface_;
  std::optional<RelaxedCaptureMode> relaxed_;
};

enum class Progress {
  done,
  open,
  blocked,  // cannot be told within a host function
};

class PendingWork::State {
 public:
  explicit State(std::shared_ptr<EventPool> pool) noexcept : pool_(std::move(pool)) {}
  ~State() { report(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;

  [[nodiscard]] const std::shared_ptr<EventPool>& pool() const noexcept { return pool_; }

  void wait_for(std::shared_ptr<RecordedEvent> event) { awaited_.push_back({std::move(event), nullptr}); }
  // Records in the stream now, or later if that cannot be. The capture that prevents it, if one does.
  std::optional<CaptureId> wait_for(std::shared_ptr<RememberedStream> stream);
  void wait_for(std::shared_ptr<HeldCapture> capture) { captures_.push_back(std::move(capture)); }

  // Asks the driver as far as needed. Never waits for the device.
  [[nodiscard]] Progress ask(RelaxedOnDemand& relaxed) noexcept;

  // Passes on what a context failed with: as a result, or to the clean-up failure handler.
  [[nodiscard]] Result<void> take_failure();
  void report() noexcept;

  [[nodiscard]] bool held() const noexcept;
  // Safe while another thread asks.
  [[nodiscard]] const std::vector<std::shared_ptr<HeldCapture>>& captures() const noexcept { return captures_; }

  [[nodiscard]] std::string describe() const;  // "3 streams or events are not done, captures 4 and 7 are held"

  void merge(State& other);

 private:
  struct Awaited {
    std::shared_ptr<RecordedEvent> event;      // null: still to be recorded in the stream
    std::shared_ptr<RememberedStream> stream;  // null: nothing to record in
  };

  RememberedStream::Recorded record(Awaited& awaited);
  WorkAnswer query(RecordedEvent& event);
  Progress ask_all(RelaxedOnDemand& relaxed);
  void fail(const std::shared_ptr<ContextEvents>& context, Failure failure);

  std::shared_ptr<EventPool> pool_;
  std::vector<Awaited> awaited_;
  std::vector<std::shared_ptr<HeldCapture>> captures_;  // does not change after the first question
  std::optional<Failure> failure_;                      // what a context failed with, and nobody was told
  std::shared_ptr<ContextEvents> failed_;
  std::optional<driver::EntryPoint> last_entry_;  // what prevented the last attempt to record, where not a capture
  abi::CUresult last_code_ = abi::CUDA_SUCCESS;
};

// Asks for one event. The failure is that of the context, if the answer is failed.
[[nodiscard]] WorkAnswer ask_for(RecordedEvent& event, std::optional<Failure>& failure);

}  // namespace cuvmm
