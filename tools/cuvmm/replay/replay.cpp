#include "replay/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "command/input_error.hpp"
#include "command/output.hpp"
#include "command/progress.hpp"
#include "command/text_file.hpp"
#include "command/words.hpp"
#include "cuvmm/context.hpp"
#include "cuvmm/error.hpp"
#include "replay/ballast.hpp"
#include "replay/findings.hpp"

namespace cuvmm::replay {
namespace {

constexpr int failed = 1;
constexpr int misuse = 2;
constexpr std::uint64_t most_trace_bytes = std::uint64_t{1} << 30;

using command::InputError;

std::string list_of_allocators() {
  std::string text;
  for (const AllocatorEntry& each : all_allocators()) text += fmt::format("{:<16} {}\n", each.name, each.description);
  return text;
}

// An option of traces of another kind is no use.
void require_kind_of_options(const Options& options, traces::WorkloadKind kind) {
  using traces::WorkloadKind;
  if (kind != WorkloadKind::requests && !options.serving_options.empty())
    throw InputError(fmt::format("{} is for traces of requests, and {} is none: leave it out.",
                                 options.serving_options.front(), command::quoted(options.trace)));
  if (kind != WorkloadKind::pickle && kind != WorkloadKind::json && options.trace_device)
    throw InputError(fmt::format("--trace-device is for memory snapshots, and {} is none: leave it out.",
                                 command::quoted(options.trace)));
}

traces::AllocationTrace read_trace(const Options& options) {
  if (!options.seed) {
    const std::string content = command::content_of_file(options.trace, most_trace_bytes);
    require_kind_of_options(options, traces::kind_of_workload(content, options.trace));
    return traces::read_workload(content, options.trace, {options.serving, options.trace_device});
  }
  if (!options.serving_options.empty() || options.trace_device)
    throw InputError(fmt::format("{} is for traces in files, and not for --random: leave it out.",
                                 options.trace_device ? "--trace-device" : options.serving_options.front()));
  traces::RandomAllocations random;
  random.seed = *options.seed;
  random.count = options.random_count.value_or(random.count);
  if (options.live_mebibytes) random.live_bytes = *options.live_mebibytes << 20;
  return traces::random_allocations(random);
}

// Before any of them is opened for writing: the trace is to survive, and each result.
void check_outputs(const Options& options) {
  const auto refuse_same = [](std::string_view option, const std::string& path, std::string_view other) {
    throw InputError(fmt::format("{} {} is the file of {}, which would be lost: name another one.", option,
                                 command::quoted(path), other));
  };
  const std::pair<std::string_view, const std::string&> outputs[] = {{"--picture", options.picture},
                                                                     {"--history", options.history}};
  if (!options.trace.empty())
    for (const auto& [option, path] : outputs)
      if (!path.empty() && command::are_same_file(path, options.trace)) refuse_same(option, path, "the trace");
  if (!options.history.empty() && !options.picture.empty() && command::are_same_file(options.history, options.picture))
    refuse_same("--history", options.history, "--picture");
  for (const auto& [option, path] : outputs)
    if (!path.empty()) command::check_writable(path);
}

traces::AllocationTrace trace_to_replay(const Options& options) {
  traces::AllocationTrace trace = read_trace(options);
  traces::scale_sizes(trace, options.scale);
  return trace;
}

bool is_chosen(const Options& options, std::string_view name) {
  return options.allocators.empty() ||
         std::find(options.allocators.begin(), options.allocators.end(), name) != options.allocators.end();
}

Findings about(const Options& options, const command::OpenedDriver& opened) {
  Findings findings;
  findings.driver = opened.driver.description();
  findings.remark = opened.remark;
  findings.emulated = opened.driver.is_emulated();
  findings.trace = options.seed ? "random" : command::quoted(options.trace);
  findings.allocations = trace_to_replay(options);
  findings.most_live = traces::most_live(findings.allocations);
  findings.scale = options.scale;
  return findings;
}

void play_all(const Options& options, const driver::CountingDriver& counting, const Bench& bench, Findings& findings) {
  const std::size_t events = findings.allocations.events.size();
  std::uint64_t turns = options.fit ? 1 : 0;
  for (const AllocatorEntry& each : all_allocators()) turns += is_chosen(options, each.name) ? 1 : 0;
  constexpr std::uint64_t noticeable_events = 20'000;
  command::Progress progress(turns * events, command::terminal_writer(turns * events, noticeable_events));
  const auto step = [&] { progress.advance(1); };
  for (const AllocatorEntry& entry : all_allocators()) {
    if (!is_chosen(options, entry.name)) continue;
    progress.label(std::string(entry.name));
    const std::unique_ptr<Allocator> allocator = entry.make(bench);
    Played played = play(findings.allocations, *allocator, counting, findings.most_live.event, step);
    played.name = entry.name;
    played.description = entry.description;
    findings.played.push_back(std::move(played));
  }
  if (!options.fit) return;
  progress.label("known beforehand");
  findings.fit = fit(findings.allocations, bench, counting, step);
}

void replay(const Options& options) {
  if (const std::string why = contradiction(options); !why.empty()) throw InputError(why);
  check_outputs(options);
  const command::OpenedDriver opened = command::open_driver(options.driver, 1);
  Findings findings = about(options, opened);
  if (!options.history.empty()) command::write_file(options.history, traces::as_history(findings.allocations));
  const auto counting = std::make_shared<driver::CountingDriver>(opened.driver.shared_interface());
  const Bench bench{Driver::wrap(counting), opened.driver, findings.allocations.streams};
  const Device device = opened.driver.device(DeviceOrdinal(0));
  findings.device = fmt::format("device 0: {}", device.name());
  const CurrentContext context(device);
  std::optional<Ballast> ballast;
  if (options.limit_mebibytes) {
    ballast.emplace(opened.driver, *options.limit_mebibytes << 20);
    findings.limit_bytes = ballast->left_bytes();
  }
  play_all(options, *counting, bench, findings);
  if (!options.picture.empty()) command::write_file(options.picture, as_picture(findings));
  command::write_out(options.json ? as_json(findings) : as_page(findings));
}

void report_error(std::string_view what) {
  std::fputs(fmt::format("cuvmm replay: {}\n", what).c_str(), stderr);
}

}  // namespace

int run_replay(const Options& options) {
  try {
    if (options.list && contradiction(options).empty()) {
      command::write_out(list_of_allocators());
    } else {
      replay(options);
    }
    return 0;
  } catch (const InputError& error) {
    report_error(error.what());
  } catch (const traces::TraceError& error) {
    report_error(error.what());
  } catch (const traces::Broken& error) {
    report_error(fmt::format("{}.", error.what()));
  } catch (const command::OutputLost& error) {
    report_error(error.what());
  } catch (const DriverUnavailable& error) {
    report_error(error.what());
  } catch (const std::exception& error) {
    report_error(error.what());
    return failed;
  }
  return misuse;
}

}  // namespace cuvmm::replay
