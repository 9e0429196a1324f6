#include "traces/allocation_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

#include "traces/fields.hpp"

namespace cuvmm::traces {

namespace {

using std::chrono::microseconds;
using Fields = std::vector<std::string_view>;

// Where columns stand, by their names.
class Columns {
 public:
  explicit Columns(std::string_view line) : names_(fields_of(line)) {}

  [[nodiscard]] std::size_t count() const noexcept { return names_.size(); }
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - names_.begin());
  }
  // The first name that stands there again.
  [[nodiscard]] std::optional<std::string_view> repeated() const {
    for (auto each = names_.begin(); each != names_.end(); ++each)
      if (std::find(std::next(each), names_.end(), *each) != names_.end()) return *each;
    return std::nullopt;
  }
  template <std::size_t count>
  [[nodiscard]] bool have(const std::array<std::string_view, count>& names) const {
    return std::all_of(names.begin(), names.end(), [&](std::string_view each) { return find(each).has_value(); });
  }

 private:
  Fields names_;
};

// One column of a line.
class Column {
 public:
  Column(const Columns& columns, std::string_view name) : name_(name), place_(columns.find(name)) {}

  [[nodiscard]] bool is_there() const noexcept { return place_.has_value(); }
  [[nodiscard]] std::string_view text(const Fields& fields) const { return fields[*place_]; }
  [[nodiscard]] std::uint64_t number(const Fields& fields, std::string_view of_what) const {
    const auto number = number_in(text(fields));
    if (!number) refuse(fields, fmt::format("it has to be a number of {}", of_what));
    return *number;
  }
  [[noreturn]] void refuse(const Fields& fields, std::string_view rule) const {
    throw Broken(fmt::format("{} is {}; {}", name_, in_quotes(text(fields)), rule));
  }

 private:
  std::string name_;
  std::optional<std::size_t> place_;
};

// Reads the lines behind the first one.
class Format {
 public:
  Format() = default;
  Format(const Format&) = delete;
  Format& operator=(const Format&) = delete;
  virtual ~Format() = default;
  virtual void read(const Fields& fields) = 0;
  virtual AllocationTrace finish() = 0;
};

constexpr std::array<std::string_view, 4> pytorch_columns{"action", "addr_offset", "size", "stream"};

class PyTorchHistory final : public Format {
 public:
  explicit PyTorchHistory(const Columns& columns)
      : action_(columns, "action"),
        address_(columns, "addr_offset"),
        size_(columns, "size"),
        stream_(columns, "stream"),
        time_(columns, "time_us") {}

  void read(const Fields& fields) override {
    const std::string_view action = action_.text(fields);
    const bool allocates = action == "alloc";
    const bool frees = action == "free_completed" || action == "free";
    if (!allocates && !frees) return check_other(fields);
    const std::uint64_t address = address_.number(fields, "bytes");
    const std::uint64_t bytes = size_.number(fields, "bytes");
    const microseconds time(time_.is_there() ? static_cast<std::int64_t>(std::min<std::uint64_t>(
                                                   time_.number(fields, "microseconds"), INT64_MAX))
                                             : 0);
    const std::uint64_t stream = stream_.number(fields, "a stream");
    if (allocates) {
      recorder_.allocate(address, bytes, stream, time);
    } else {
      recorder_.free(address, time);
    }
  }
  AllocationTrace finish() override { return std::move(recorder_).finish("PyTorch's memory history, as CSV"); }

 private:
  void check_other(const Fields& fields) const {
    constexpr std::array<std::string_view, 9> others{"free_requested", "segment_alloc", "segment_free",
                                                     "segment_map",    "segment_unmap", "oom",
                                                     "snapshot",       "user_defined",  "workspace_snapshot"};
    if (std::find(others.begin(), others.end(), action_.text(fields)) == others.end())
      action_.refuse(fields, "PyTorch records alloc, free_requested, free_completed and what becomes of segments");
  }

  Column action_, address_, size_, stream_, time_;
  AllocationRecorder recorder_;
};

constexpr std::array<std::string_view, 4> rmm_columns{"Action", "Pointer", "Size", "Stream"};

class RmmLog final : public Format {
 public:
  explicit RmmLog(const Columns& columns)
      : action_(columns, "Action"),
        pointer_(columns, "Pointer"),
        size_(columns, "Size"),
        stream_(columns, "Stream"),
        time_(columns, "Time") {}

  void read(const Fields& fields) override {
    const std::string_view action = action_.text(fields);
    if (action == "allocate failure") return recorder_.pass_over("allocations that failed when they were recorded");
    const bool allocates = action == "allocate";
    if (!allocates && action != "free" && action != "deallocate")
      action_.refuse(fields, "RMM logs allocate, free (or deallocate) and allocate failure");
    const std::uint64_t address = hexadecimal(pointer_, fields);
    const std::uint64_t bytes = size_.number(fields, "bytes");
    const std::uint64_t stream = hexadecimal(stream_, fields);
    if (allocates) {
      recorder_.allocate(address, bytes, stream, time(fields));
    } else if (bytes == 0) {
      recorder_.pass_over("frees of no bytes");
    } else {
      recorder_.free(address, time(fields));
    }
  }
  AllocationTrace finish() override { return std::move(recorder_).finish("a log of RMM"); }

 private:
  // Pointers are hexadecimal, with or without 0x before them.
  static std::uint64_t hexadecimal(const Column& column, const Fields& fields) {
    const std::string_view text = column.text(fields);
    const auto number = number_in(text.starts_with("0x") ? std::string(text) : "0x" + std::string(text));
    if (!number) column.refuse(fields, "it has to be a hexadecimal number");
    return *number;
  }
  // A time of day, which begins anew at midnight, or seconds; anything else is no time.
  microseconds time(const Fields& fields) {
    if (!time_.is_there()) return microseconds(0);
    const auto read = time_of_day_in(time_.text(fields));
    if (!read) return last_;
    if (*read + midnights_ + std::chrono::hours(12) < last_) midnights_ += std::chrono::hours(24);
    last_ = std::max(last_, *read + midnights_);
    return last_;
  }

  Column action_, pointer_, size_, stream_, time_;
  microseconds last_{};
  microseconds midnights_{};
  AllocationRecorder recorder_;
};

constexpr std::array<std::string_view, 3> interval_columns{"lower", "upper", "size"};

class Intervals final : public Format {
 public:
  explicit Intervals(const Columns& columns)
      : lower_(columns, "lower"), upper_(columns, "upper"), size_(columns, "size") {}

  void read(const Fields& fields) override {
    const std::uint64_t lower = moment(lower_, fields);
    const std::uint64_t upper = moment(upper_, fields);
    if (upper <= lower) upper_.refuse(fields, fmt::format("it has to be more than lower, which is {}", lower));
    const std::uint64_t bytes = size_.number(fields, "bytes");
    if (bytes == 0 || bytes > most_allocation_bytes)
      size_.refuse(fields, fmt::format("it has to be a number of bytes from 1 to {}", most_allocation_bytes));
    intervals_.push_back({lower, upper, bytes});
  }

  AllocationTrace finish() override {
    struct End {
      std::uint64_t time;
      bool begins;  // what ends goes before it
      std::size_t interval;
    };
    std::vector<End> ends;
    for (std::size_t i = 0; i < intervals_.size(); ++i) {
      ends.push_back({intervals_[i].lower, true, i});
      ends.push_back({intervals_[i].upper, false, i});
    }
    std::stable_sort(ends.begin(), ends.end(), [](const End& one, const End& other) {
      return one.time != other.time ? one.time < other.time : !one.begins && other.begins;
    });
    AllocationRecorder recorder;
    for (const End& each : ends) {
      const microseconds time(static_cast<std::int64_t>(each.time));
      if (each.begins) {
        recorder.allocate(each.interval, intervals_[each.interval].bytes, 0, time);
      } else {
        recorder.free(each.interval, time);
      }
    }
    return std::move(recorder).finish("intervals of time");
  }

 private:
  static std::uint64_t moment(const Column& column, const Fields& fields) {
    const std::uint64_t time = column.number(fields, "a moment");
    if (time > INT64_MAX) column.refuse(fields, "it is too late a moment");
    return time;
  }

  struct Interval {
    std::uint64_t lower, upper, bytes;
  };
  Column lower_, upper_, size_;
  std::vector<Interval> intervals_;
};

std::unique_ptr<Format> format_of(const Columns& columns) {
  if (columns.have(pytorch_columns)) return std::make_unique<PyTorchHistory>(columns);
  if (columns.have(rmm_columns)) return std::make_unique<RmmLog>(columns);
  if (columns.have(interval_columns)) return std::make_unique<Intervals>(columns);
  return nullptr;
}

}  // namespace

bool names_allocation_columns(std::string_view first_line) {
  return format_of(Columns(trimmed(first_line))) != nullptr;
}

AllocationTrace read_allocation_lines(std::string_view text, const std::string& name) {
  std::unique_ptr<Format> format;
  std::size_t columns = 0;
  for_each_line(text, name, [&](std::string_view line) {
    if (!format) {
      const Columns named(line);
      columns = named.count();
      format = format_of(named);
      if (!format)
        throw Broken(fmt::format("the columns are {}, which are those of no trace of allocations", in_quotes(line)));
      if (const auto twice = named.repeated())
        throw Broken(fmt::format("the column {} is named twice: which one counts is not known", in_quotes(*twice)));
      return;
    }
    const Fields fields = fields_of(line);
    if (fields.size() != columns)
      throw Broken(fmt::format("it has {} columns, where the first line names {}", fields.size(), columns));
    format->read(fields);
  });
  try {
    if (!format) throw Broken("it has no allocations");
    return format->finish();
  } catch (const Broken& broken) {
    throw TraceError(name, 0, broken.what());
  }
}

}  // namespace cuvmm::traces
