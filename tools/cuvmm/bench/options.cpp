#include "bench/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/reports.hpp"
#include "command/words.hpp"

namespace cuvmm::bench {
namespace {

std::string known_report(const std::string& name) {
  std::string names;
  for (const ReportEntry& each : all_reports()) {
    if (each.name == name) return {};
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  return "there is no report " + command::quoted(name) + "; there are: " + names;
}

// As a number of mebibytes.
CLI::Option* add_size(CLI::App& command, const std::string& name, std::optional<std::size_t>& bytes,
                      const std::string& description) {
  return command
      .add_option_function<std::size_t>(
          name, [&bytes](const std::size_t& mebibytes) { bytes = mebibytes << 20; }, description)
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 24))
      ->option_text("MIB");
}

}  // namespace

void add_options(CLI::App& command, Options& options) {
  Settings& settings = options.settings;
  command.add_option("report", options.reports, "Which reports, in the order of --list; all unless named")
      ->option_text("REPORT...")
      ->check(CLI::Validator([](std::string& name) { return known_report(name); }, ""));
  command::add_driver_option(command, options.driver);
  command.add_option("--devices", options.devices, "Devices that take part: with 2, reports tell of the peer, too")
      ->option_text("N [1]")
      ->check(CLI::Range(1, 2));
  command.add_flag("--list", options.list, "Name the reports and what they measure, and do nothing else");
  command.add_flag("--json", options.json, "Write JSON instead of a page for people");
  command
      .add_option("--rounds", settings.rounds, "How often each way has its turn; as each report has it unless given")
      ->option_text("N")
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--pause", settings.pause_seconds, "Seconds of idle time before each turn; likewise")
      ->option_text("SECONDS")
      ->check([](const std::string& text) {  // which a range alone lets pass
        return text.find_first_of("nN") == std::string::npos ? std::string() : "Seconds are a number";
      })
      ->check(CLI::Range(0.0, 3600.0));
  add_size(command, "--mib", settings.bytes, "MiB that grow, are read, sleep or are attached; likewise");
  add_size(command, "--staging-mib", settings.staging_bytes,
           "sleep: MiB of pinned memory that pageable content goes through");
  add_size(command, "--chunk-mib", settings.chunk_bytes, "attach: MiB of a chunk of the range");
  command.add_flag("--own-processes", settings.own_processes,
                   "growth: take each turn in a process of its own, whose memory has not been used before");
  command.add_option("--turn-of", settings.turn_of, "One turn of such a process")->group("");  // of no use to people
  command.add_option("--threads", settings.threads, "sleep: threads that copy pageable content")
      ->option_text("N")
      ->check(CLI::Range(1U, 64U));
}

}  // namespace cuvmm::bench
