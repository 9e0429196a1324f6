#include "replay/options.hpp"

#include <CLI/CLI.hpp>

#include "command/words.hpp"
#include "replay/allocator.hpp"

namespace cuvmm::replay {
namespace {

std::string known_allocator(const std::string& name) {
  std::string names;
  for (const AllocatorEntry& each : all_allocators()) {
    if (each.name == name) return {};
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  return "there is no allocator " + command::quoted(name) + "; there are: " + names;
}

// One of the model or of how it is served, which is noted to have been given.
template <class Number>
void add_serving(CLI::App& command, Options& options, const std::string& name, Number& number, Number most,
                 const std::string& description, const std::string& text) {
  command
      .add_option_function<Number>(
          name,
          [&options, &number, name](const Number& given) {
            number = given;
            options.serving_options.push_back(name);
          },
          description)
      ->option_text(text)
      ->check(CLI::Range(Number{1}, most));
}

void add_serving_options(CLI::App& command, Options& options) {
  traces::Serving& serving = options.serving;
  constexpr std::uint64_t most = 1 << 16;
  add_serving(command, options, "--layers", serving.layers, most, "requests: layers of the model", "N [32]");
  add_serving(command, options, "--kv-heads", serving.key_value_heads, most, "requests: heads of keys and values",
              "N [8]");
  add_serving(command, options, "--head-dim", serving.head_dimension, most, "requests: elements of a head", "N [128]");
  add_serving(command, options, "--element-bytes", serving.element_bytes, std::uint64_t{8},
              "requests: bytes of an element", "N [2]");
  add_serving(command, options, "--tokens-per-second", serving.tokens_per_second, 1e6,
              "requests: tokens that each sequence generates in a second", "N [20]");
  add_serving(command, options, "--sequences", serving.most_sequences, std::size_t{1} << 20,
              "requests: sequences at a time, at most", "N [64]");
  add_serving(command, options, "--growth-tokens", serving.growth_tokens, std::uint64_t{1} << 20,
              "requests: tokens that a sequence takes memory for when it has no more room", "N [64]");
}

}  // namespace

void add_options(CLI::App& command, Options& options) {
  command.add_option("TRACE", options.trace, "The file that has the trace; its first bytes tell the format");
  command.add_option("--random", options.seed, "Replay random allocations of that seed instead of a file")
      ->option_text("SEED")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--allocations", options.random_count, "random: how many allocations")
      ->option_text("N [10000]")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 24));
  command.add_option("--live-mib", options.live_mebibytes, "random: MiB that are live at a time")
      ->option_text("MIB [8192]")
      ->check(CLI::Range(std::uint64_t{1024}, std::uint64_t{1} << 24));
  command::add_driver_option(command, options.driver);
  command.add_option("--allocator", options.allocators, "Only this allocator; may be given several times")
      ->option_text("NAME")
      ->allow_extra_args(false)
      ->check(CLI::Validator([](std::string& name) { return known_allocator(name); }, ""));
  command.add_flag("--list", options.list, "Name the allocators, and do nothing else");
  command.add_option("--limit-mib", options.limit_mebibytes, "MiB of the device's memory that there are to allocate")
      ->option_text("MIB")
      ->check(CLI::Range(std::uint64_t{2}, std::uint64_t{1} << 24));
  command.add_option("--scale", options.scale, "Make every allocation that many times as large")
      ->option_text("N [1]")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32));
  command.add_flag("--fit", options.fit,
                   "Also with all allocations known beforehand: no more memory than is needed at the worst moment");
  command.add_flag("--json", options.json, "Write JSON instead of a table");
  command.add_option("--picture", options.picture, "Write a picture of the memory over time: a page of HTML")
      ->option_text("FILE");
  command
      .add_option("--history", options.history, "Write the trace as it is replayed: as CSV of PyTorch's memory history")
      ->option_text("FILE");
  command.add_option("--trace-device", options.trace_device, "snapshots: the device whose history is replayed")
      ->option_text("N")
      ->check(CLI::NonNegativeNumber);
  add_serving_options(command, options);
}

std::string contradiction(const Options& options) {
  if (options.list && options.json) return "--list is for people: leave --json out.";
  if (options.list) return options.trace.empty() && !options.seed ? "" : "--list takes no trace.";
  if (options.trace.empty() && !options.seed) return "A trace is needed: name a file, or --random with a seed.";
  if (!options.trace.empty() && options.seed) return "--random takes no file: name one or the other.";
  if (!options.seed && options.random_count) return "--allocations is for --random: leave it out, or the file.";
  if (!options.seed && options.live_mebibytes) return "--live-mib is for --random: leave it out, or the file.";
  return {};
}

}  // namespace cuvmm::replay
