// Recordings of sequences that somebody has changed: they are refused, or read as something else, and nothing worse.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "conformance/cases/drivers.hpp"
#include "conformance/cases/process_pool.hpp"
#include "conformance/sequences/generator.hpp"
#include "conformance/sequences/play.hpp"
#include "conformance/sequences/sequence_findings.hpp"

namespace cuvmm::conformance {
namespace {

// What the emulated driver answers to some sequences, or the recording that the environment names.
std::string a_recording() {
  if (const char* const path = std::getenv("CUVMM_TEST_RECORDING")) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string said;
  const Task task{[](int descriptor) {
    Player player{emulated_driver()(), 2};
    Recording recording{Generator::version, 2, "a machine", {}};
    for (std::uint64_t seed = 1; seed <= 40; ++seed) recording.sequences.push_back(play(seed, 2, player));
    write_to(descriptor, to_text(recording));
  }};
  run_tasks({task}, {std::chrono::seconds{240}, 1}, [&](std::size_t, const Ended& ended) { said = ended.output; });
  return said;
}

std::size_t place_in(const std::string& text, Random& random) {
  return static_cast<std::size_t>(random.below(static_cast<std::int64_t>(text.size())));
}

void flip_a_bit(std::string& text, Random& random) {
  const std::size_t at = place_in(text, random);
  text[at] = static_cast<char>(text[at] ^ (1 << random.below(8)));
}

void end_early(std::string& text, Random& random) {
  text.resize(place_in(text, random));
}

void cut_a_line(std::string& text, Random& random) {
  const std::size_t at = place_in(text, random);
  text.erase(at, text.find('\n', at) - at);
}

void exchange_digits(std::string& text, Random& random) {
  std::swap(text[place_in(text, random)], text[place_in(text, random)]);
}

// A driver that accepts, or refuses, what it cannot: the generator has to go on from there.
void turn_answers(std::string& text, Random& random) {
  const char from = random.one_of({'v', '.'});
  for (char& each : text)
    if (each == from && random.percent(10)) each = from == 'v' ? '.' : 'v';
}

void insert_nonsense(std::string& text, Random& random) {
  std::string nonsense(static_cast<std::size_t>(random.below(600)), '.');
  for (char& each : nonsense)
    if (random.percent(30)) each = static_cast<char>(random.below(256));
  text.insert(place_in(text, random), nonsense);
}

// Whether it is still a recording. All that is done with one is done with it.
bool is_read(const std::string& text) {
  Recording recording;
  try {
    recording = parse_recording(text, "the test's recording");
  } catch (const std::runtime_error&) {
    return false;
  }
  for (const RecordedSequence& each : recording.sequences) {
    static_cast<void>(checksum_of_calls(each.seed, recording.devices, each.steps));
    RecordedSequence played = each;
    if (!played.steps.empty()) played.steps.pop_back();
    static_cast<void>(compare(played, &each, recording.devices));
  }
  static_cast<void>(as_page(statistics_of(recording)));
  return true;
}

TEST(TamperedRecording, IsRefusedOrReadWithoutHarm) {
  using Tamper = void (*)(std::string&, Random&);
  constexpr Tamper ways[] = {flip_a_bit, end_early, cut_a_line, exchange_digits, turn_answers, insert_nonsense};
  const std::string untouched = a_recording();
  ASSERT_TRUE(is_read(untouched)) << untouched;
  const int rounds = std::getenv("CUVMM_TEST_LONG") != nullptr ? 20'000 : 150;
  int read = 0;
  for (int round = 0; round < rounds; ++round) {
    Random random{static_cast<std::uint64_t>(round)};
    std::string text = untouched;
    for (std::int64_t times = 1 + random.below(3); times > 0 && !text.empty(); --times)
      ways[random.below(std::size(ways))](text, random);
    if (is_read(text)) ++read;
  }
  EXPECT_GT(read, 0) << "nothing got as far as the generator";
  EXPECT_LT(read, rounds) << "nothing was refused";
}

TEST(TamperedRecording, EndsASequenceBehindAnAnswerThatNoDriverGives) {
  // The first call of seed 1 to which success is no answer: whatever is drawn is accepted, over and over.
  std::size_t longest = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Generator all_accepted{seed, 2};
    Generator all_refused{seed, 2};
    std::size_t accepted = 0;
    std::size_t refused = 0;
    for (; all_accepted.next(); ++accepted) all_accepted.answered(CUDA_SUCCESS);
    for (; all_refused.next(); ++refused) all_refused.answered(CUDA_ERROR_INVALID_VALUE);
    EXPECT_LE(accepted, refused) << seed;
    longest = std::max(longest, refused - accepted);
  }
  EXPECT_GT(longest, 0U);
}

TEST(TamperedRecording, RefusesMoreStepsThanASequenceHas) {
  const std::string heading = "cuvmm sequences 2\ngenerator 1\ndevices 2\nmachine a machine\n";
  const auto with_steps = [&](std::size_t count) { return heading + "1 " + std::string(count, '.') + " 00000001\n"; };
  EXPECT_THROW(static_cast<void>(parse_recording(with_steps(Generator::most_length + 1), "a test")),
               std::runtime_error);
  EXPECT_EQ(parse_recording(with_steps(Generator::most_length), "a test").sequences.size(), 1U);
  EXPECT_THROW(static_cast<void>(parse_recording("cuvmm sequences 2\ngenerator 1\ndevices 3\n", "a test")),
               std::runtime_error);
  EXPECT_THROW(static_cast<void>(parse_recording("cuvmm sequences 2\ngenerator 1\ndevices 0\n", "a test")),
               std::runtime_error);
  EXPECT_EQ(parse_recording("cuvmm sequences 2\ngenerator 1\ndevices 2\n", "a test").devices, 2);
}

}  // namespace
}  // namespace cuvmm::conformance
