#include "bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cuvmm/context.hpp>
#include <cuvmm/error.hpp>
#include <string>

#include "bench/reports.hpp"
#include "bench/unavailable.hpp"
#include "command/input_error.hpp"
#include "command/output.hpp"

namespace cuvmm::bench {
namespace {

constexpr int failed = 1;
constexpr int misuse = 2;

bool is_chosen(const Options& options, std::string_view name) {
  return options.reports.empty() ||
         std::find(options.reports.begin(), options.reports.end(), name) != options.reports.end();
}

// An option of one report is no use where that is not made.
void require_reports_of_options(const Options& options) {
  const auto require = [&](bool given, std::string_view option, std::string_view report) {
    if (given && !is_chosen(options, report))
      throw command::InputError(
          fmt::format("{} is for the report {}: name that as well, or leave the option out.", option, report));
  };
  require(options.settings.staging_bytes.has_value(), "--staging-mib", "sleep");
  require(options.settings.threads.has_value(), "--threads", "sleep");
  require(options.settings.chunk_bytes.has_value(), "--chunk-mib", "attach");
  if (options.settings.own_processes && options.reports != std::vector<std::string>{"growth"})
    throw command::InputError("--own-processes is for the report growth: name that, and no other.");
}

// How this program makes the same report once more, with the same work.
std::vector<std::string> words_for(const Options& options, bool emulated) {
  std::vector<std::string> words{"bench", "growth", "--driver", emulated ? "emulated" : "cuda"};
  const auto add = [&](std::string_view option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  add("--devices", std::to_string(options.devices));
  if (options.settings.bytes) add("--mib", std::to_string(*options.settings.bytes >> 20));
  return words;
}

std::string list_of_reports() {
  std::string text;
  for (const ReportEntry& each : all_reports()) text += fmt::format("{:<10} {}\n", each.name, each.description);
  return text;
}

void report_error(std::string_view what) {
  std::fputs(fmt::format("cuvmm bench: {}\n", what).c_str(), stderr);
}

// What cannot be made leaves the others alone.
std::optional<Report> made(const ReportEntry& entry, const Meter& meter, const Settings& settings) {
  try {
    Report report = entry.run(meter, settings);
    report.name = entry.name;
    return report;
  } catch (const Unavailable& why) {
    Report report;
    report.name = entry.name;
    report.title = entry.description;
    report.left_out = why.what();
    return report;
  } catch (const std::exception& error) {
    report_error(fmt::format("{}: {}", entry.name, error.what()));
  }
  return std::nullopt;
}

int run_reports(const Options& options) {
  require_reports_of_options(options);
  const auto opened = command::open_driver(options.driver, options.devices);
  const Meter meter(opened.driver);
  const Device device = meter.driver().device(DeviceOrdinal(0));
  const CurrentContext context(device);
  Settings settings = options.settings;
  settings.same_again = words_for(options, meter.counts());
  Findings findings{meter.driver().description(),
                    fmt::format("device 0: {}", device.name()),
                    opened.remark,
                    meter.counts(),
                    meter.counts() ? why_no_instructions() : std::string(),
                    {}};
  if (!options.json) command::write_out(heading(findings));
  bool all = true;
  for (const ReportEntry& entry : all_reports()) {
    if (!is_chosen(options, entry.name)) continue;
    auto report = made(entry, meter, settings);
    all = all && report;
    if (!report) continue;
    if (!options.json) command::write_out(as_page(*report, findings.counts));
    findings.reports.push_back(std::move(*report));
  }
  if (options.json) command::write_out(as_json(findings));
  return all ? 0 : failed;
}

}  // namespace

int run_bench(const Options& options) {
  try {
    if (options.list) {
      command::write_out(list_of_reports());
      return 0;
    }
    return run_reports(options);
  } catch (const command::InputError& error) {
    report_error(error.what());
  } catch (const command::OutputLost& error) {
    report_error(error.what());
  } catch (const Error& error) {
    report_error(error.what());
  }
  return misuse;
}

}  // namespace cuvmm::bench
