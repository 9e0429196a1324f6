#include "conformance/options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

#include "command/words.hpp"

namespace cuvmm::conformance {

namespace {

// CLI11 takes what is larger than the largest number for that, and what has a sign for something else.
std::string refusal_of_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  if (const auto [rest, error] = std::from_chars(text.data(), end, seed); error == std::errc{} && rest == end)
    return {};
  return command::quoted(text) + " is no seed: take a whole number from 0 to 18446744073709551615";
}

// "2/3"; nothing if it is no shard.
std::optional<Shard> shard_of(const std::string& text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto [slash, error] = std::from_chars(text.data(), end, shard.number);
  if (error != std::errc{} || slash == end || *slash != '/') return std::nullopt;
  const auto [rest, other_error] = std::from_chars(slash + 1, end, shard.of);
  if (other_error != std::errc{} || rest != end || shard.number < 1 || shard.number > shard.of) return std::nullopt;
  return shard;
}

std::string refusal_of_shard(const std::string& text) {
  if (shard_of(text)) return {};
  return command::quoted(text) + " is no shard: take I/N with 1 <= I <= N, such as 1/2";
}

void add_sequence_options(CLI::App& command, Options& options) {
  CLI::Option* const sequences =
      command.add_option("--sequences", options.sequences, "Run this many random sequences of calls, and no cases")
          ->option_text("N")
          ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000}))
          ->excludes("--match")
          ->excludes("--shard");  // there is nothing in a sequence that has a name
  command
      .add_option("--seed", options.seed,
                  "The seed of the first sequence, which fixes all its calls; the next has the next")
      ->option_text("S [the recording's first]")
      ->check(CLI::Validator(refusal_of_seed, ""))
      ->needs(sequences);
  command
      .add_option("--sequences-file", options.sequences_file,
                  "Compare with this recording of sequences instead of the profile's")
      ->option_text("FILE")
      ->needs(sequences);
  command
      .add_flag("--statistics", options.statistics,
                "Tell which calls and answers the recorded sequences have, and how long they are; run none")
      ->needs(sequences);
}

}  // namespace

void add_options(CLI::App& command, Options& options) {
  command::add_driver_option(command, options.driver);
  command.add_option("--devices", options.devices, "How many devices the cases may use: 1 or 2")
      ->option_text("N [those there are]")
      ->check(CLI::Range(1, 2));
  command.add_option("--match", options.match, "Run only cases whose name contains this")->option_text("TEXT");
  command
      .add_option_function<std::string>(
          "--shard", [&options](const std::string& text) { options.shard = shard_of(text).value(); },
          "Run only every N-th of them, beginning with the I-th")
      ->option_text("I/N")
      ->check(CLI::Validator(refusal_of_shard, ""));
  command.add_option("--jobs", options.jobs, "Processes at a time; a case that must be alone is")
      ->option_text("N [1]")
      ->check(CLI::Range(1, 256));
  command
      .add_option("--time-limit", options.time_limit,
                  "Seconds after which a case is killed and told as timed out; of sequences, a hundred of them")
      ->option_text("SECONDS [120; 300 for sequences]")
      ->check(CLI::Range(1, 86'400));
  command.add_option("--record", options.record, "Write what was answered to this file")->option_text("FILE");
  command
      .add_option("--profile", options.profile,
                  "Whose recorded answers to compare with; the emulated driver pretends to be that machine")
      ->option_text("P [h200-580]");
  command.add_flag("--json", options.json, "Write JSON instead of tables for people");
  add_sequence_options(command, options);
  command.footer(
      "Ends with 0 if nothing differs from what was recorded, with 1 if something does, with 2 if it could not be "
      "asked. docs/conformance.md tells more.");
}

}  // namespace cuvmm::conformance
