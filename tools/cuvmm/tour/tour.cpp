#include "tour/tour.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "command/driver_choice.hpp"
#include "command/input_error.hpp"
#include "command/output.hpp"
#include "command/words.hpp"
#include "cuvmm/error.hpp"
#include "driver/counting_driver.hpp"
#include "tour/cleanup_watch.hpp"
#include "tour/content_checksum.hpp"
#include "tour/emulated_machine.hpp"

namespace cuvmm::tour {
namespace {

// The checksum of the file, taken by the host from the file alone.
std::uint64_t checksum_of(const InputFile& input, command::Progress& progress) {
  std::vector<std::byte> buffer(std::size_t{4} << 20);
  ContentChecksum checksum;
  while (checksum.bytes() < input.size()) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), input.size() - checksum.bytes()));
    input.read(checksum.bytes(), piece);
    checksum.add(piece);
    progress.advance(piece.size());
  }
  return checksum.value();
}

// Visits the stop and judges it. What goes wrong with the input is no matter of the stop, and is passed on.
void judge(const Stop& stop, Visit& visit, CleanupWatch& watch, StopReport& report) {
  try {
    stop.visit(visit);
    const std::string not_given_back = watch.take();
    visit.checks.require(not_given_back.empty(), "all that the stop took is given back", not_given_back);
    report.status = Status::passed;
  } catch (const command::InputError&) {
    throw;
  } catch (const Unavailable& why) {
    report.status = Status::unavailable;
    report.reason = why.what();
  } catch (const std::exception& why) {
    report.status = Status::failed;
    report.reason = why.what();
  }
  if (const std::string not_given_back = watch.take(); !not_given_back.empty()) {
    report.status = Status::failed;
    report.reason += fmt::format(" Then a clean-up failed: {}", not_given_back);
  }
  visit.input.require_unchanged();
}

class Tour {
 public:
  Tour(const Options& options, const InputFile& input)
      : options_(options), input_(input), stops_(choose_stops(options.stops)) {
    command::OpenedDriver opened = command::open_shareable_driver(options.driver, options.devices, emulated_machine());
    place_ = std::move(opened.place);
    remark_ = std::move(opened.remark);
    counter_ = std::make_shared<driver::CountingDriver>(opened.driver.shared_interface());
    const Driver driver = Driver::wrap(counter_);
    for (int ordinal = 0; ordinal < options.devices; ++ordinal) {
      gpus_.push_back(std::make_unique<Gpu>(driver, DeviceOrdinal(ordinal)));
      const Device& device = gpus_.back()->device();
      report_.devices.push_back({ordinal, device.name(), device.total_memory()});
    }
    report_.driver = driver.description();
  }

  // What people read before the table: the driver, why it was chosen, the devices and the input.
  void announce() const {
    if (!remark_.empty()) std::fputs((remark_ + "\n").c_str(), stderr);
    if (options_.json) return;
    std::string text = fmt::format("Driver: {}\n", report_.driver);
    for (const DeviceReport& device : report_.devices) {
      text +=
          fmt::format("Device {}: {}, {}\n", device.ordinal, device.name, command::bytes_in_words(device.memory_bytes));
    }
    text += fmt::format("Input: {}, {}{}\n\n", command::quoted(input_.path()), command::bytes_in_words(input_.size()),
                        input_.size() == 0 ? "; it is empty, so that the features are shown and no byte moves" : "");
    command::write_out(text);
  }

  // Gives back what the stops share. What failed at that, in one text; empty if nothing did.
  std::string end() {
    gpus_.clear();
    return watch_.take();
  }

  Report visit_all() {
    const std::uint64_t total = input_.size() * (1 + stops_.size());
    command::Progress progress(total, options_.json ? command::Progress::Write{} : command::terminal_writer(total));
    progress.label("reading");
    const std::uint64_t checksum = checksum_of(input_, progress);
    for (const Stop& stop : stops_) {
      progress.label(stop.id);
      report_.stops.push_back(visit(stop, checksum, progress));
    }
    return report_;
  }

 private:
  StopReport visit(const Stop& stop, std::uint64_t checksum, command::Progress& progress) {
    StopReport report;
    report.id = stop.id;
    report.name = stop.name;
    Checks checks;
    Visit visit{Driver::wrap(counter_), gpus_, input_, checksum, choice(), progress, checks, stop.shown, 0, place_};
    const driver::CallCounts before = counter_->snapshot();
    const auto start = std::chrono::steady_clock::now();
    judge(stop, visit, watch_, report);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const auto& [entry_point, count] : (counter_->snapshot() - before).called()) {
      report.calls.emplace(driver::name(entry_point), count);
    }
    report.shown = visit.shown;
    report.bytes = visit.bytes;
    report.checks = checks.made();
    return report;
  }

  command::DriverChoice choice() const {
    return counter_->emulated() ? command::DriverChoice::emulated : command::DriverChoice::cuda;
  }

  const Options& options_;
  const InputFile& input_;
  std::vector<Stop> stops_;
  std::string remark_;
  command::DriverPlace place_;
  CleanupWatch watch_;
  std::shared_ptr<driver::CountingDriver> counter_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  Report report_;
};

}  // namespace

std::vector<Stop> choose_stops(const std::vector<std::string>& ids) {
  const std::span<const Stop> all = all_stops();
  for (const std::string& id : ids) {
    if (std::any_of(all.begin(), all.end(), [&](const Stop& stop) { return stop.id == id; })) continue;
    std::string known;
    for (const Stop& stop : all) known += (known.empty() ? "" : ", ") + stop.id;
    throw command::InputError(fmt::format("There is no stop {}; there are {}.", command::quoted(id), known));
  }
  std::vector<Stop> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), [&](const Stop& stop) {
    return ids.empty() || std::find(ids.begin(), ids.end(), stop.id) != ids.end();
  });
  return chosen;
}

std::string list_of_stops() {
  std::string text;
  for (const Stop& stop : all_stops()) text += fmt::format("{:<10}{}: {}\n", stop.id, stop.name, stop.shown);
  return text;
}

int run_tour(const Options& options) {
  constexpr int failed = 1;
  constexpr int misuse = 2;
  try {
    if (const std::string wrong = contradiction(options); !wrong.empty()) throw command::InputError(wrong);
    if (options.list) {
      command::write_out(list_of_stops());
      return 0;
    }
    const InputFile input(options.file);
    Tour tour(options, input);
    tour.announce();
    const Report report = tour.visit_all();
    const std::string not_given_back = tour.end();
    if (!not_given_back.empty()) {
      std::fputs(fmt::format("cuvmm tour: a clean-up failed: {}\n", not_given_back).c_str(), stderr);
    }
    command::write_out(options.json ? as_json(report) : as_table(report));
    return any_failed(report) || !not_given_back.empty() ? failed : 0;
  } catch (const command::InputError& error) {
    std::fputs(fmt::format("cuvmm tour: {}\n", error.what()).c_str(), stderr);
  } catch (const command::OutputLost& error) {
    std::fputs(fmt::format("cuvmm tour: {}\n", error.what()).c_str(), stderr);
  } catch (const Error& error) {
    std::fputs(fmt::format("cuvmm tour: {}\n", error.what()).c_str(), stderr);
  }
  return misuse;
}

}  // namespace cuvmm::tour
