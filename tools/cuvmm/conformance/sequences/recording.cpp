#include "conformance/sequences/recording.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <stdexcept>

#include "conformance/sequences/generator.hpp"

namespace cuvmm::conformance {
namespace {

constexpr std::string_view first_line = "cuvmm sequences 2";

struct Letter {
  char letter;
  CUresult code;
};

// None of 0-9 and a-f, of which what is seen consists.
constexpr std::array letters{Letter{'.', CUDA_SUCCESS},
                             Letter{'v', CUDA_ERROR_INVALID_VALUE},
                             Letter{'s', CUDA_ERROR_NOT_SUPPORTED},
                             Letter{'o', CUDA_ERROR_OUT_OF_MEMORY},
                             Letter{'i', CUDA_ERROR_INVALID_DEVICE},
                             Letter{'C', CUDA_ERROR_INVALID_CONTEXT},
                             Letter{'h', CUDA_ERROR_INVALID_HANDLE},
                             Letter{'n', CUDA_ERROR_NOT_FOUND},
                             Letter{'p', CUDA_ERROR_NOT_PERMITTED},
                             Letter{'u', CUDA_ERROR_UNKNOWN},
                             Letter{'y', CUDA_ERROR_OPERATING_SYSTEM},
                             Letter{'r', CUDA_ERROR_NOT_READY},
                             Letter{'l', CUDA_ERROR_ILLEGAL_ADDRESS},
                             Letter{'L', CUDA_ERROR_LAUNCH_FAILED},
                             Letter{'S', CUDA_ERROR_ILLEGAL_STATE},
                             Letter{'U', CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
                             Letter{'I', CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
                             Letter{'M', CUDA_ERROR_STREAM_CAPTURE_MERGE},
                             Letter{'N', CUDA_ERROR_STREAM_CAPTURE_UNMATCHED},
                             Letter{'J', CUDA_ERROR_STREAM_CAPTURE_UNJOINED},
                             Letter{'O', CUDA_ERROR_STREAM_CAPTURE_ISOLATION},
                             Letter{'P', CUDA_ERROR_STREAM_CAPTURE_IMPLICIT},
                             Letter{'W', CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
                             Letter{'T', CUDA_ERROR_CAPTURED_EVENT}};
constexpr char other_code = 'q';  // its number follows

bool is_seen(char character) {
  return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'f') ||
         std::string_view{"*~-+/?_"}.find(character) != std::string_view::npos;
}

std::optional<CUresult> code_of(char letter) {
  for (const Letter& each : letters)
    if (each.letter == letter) return each.code;
  return std::nullopt;
}

template <class Number>
bool read(std::string_view text, Number& number, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(line.size(), word.size() + 1));
  return word;
}

// False if the line is none of a sequence.
bool read_sequence(std::string_view line, RecordedSequence& sequence) {
  if (!read(take_word(line), sequence.seed)) return false;
  std::string_view steps = take_word(line);
  sequence.steps = take_steps(steps);
  sequence.end = steps;
  if (sequence.steps.size() > std::size_t{Generator::most_length}) return false;
  return (steps.empty() || steps.front() == '!') && read(line, sequence.checksum, 16);
}

// False if the line is none of the heading.
bool read_heading(std::string_view line, Recording& recording) {
  const std::string_view key = take_word(line);
  if (key == "generator") return read(line, recording.generator);
  if (key == "devices") return read(line, recording.devices) && recording.devices >= 1 && recording.devices <= 2;
  if (key != "machine") return false;
  recording.machine = line;
  return true;
}

}  // namespace

std::string to_text(const Step& step) {
  for (const Letter& each : letters)
    if (each.code == step.code) return each.letter + step.seen;
  return other_code + std::to_string(static_cast<int>(step.code));
}

std::vector<Step> take_steps(std::string_view& text) {
  std::vector<Step> steps;
  while (!text.empty()) {
    const char letter = text.front();
    const auto code = code_of(letter);
    if (!code && letter != other_code) break;
    text.remove_prefix(1);
    std::size_t length = 0;
    while (length < text.size() && is_seen(text[length])) ++length;
    Step step{code.value_or(CUDA_ERROR_UNKNOWN), std::string{text.substr(0, length)}};
    int number = 0;
    if (!code && read(step.seen, number)) step = {static_cast<CUresult>(number), ""};
    steps.push_back(std::move(step));
    text.remove_prefix(length);
  }
  return steps;
}

std::string to_text(const RecordedSequence& sequence) {
  std::string text = std::to_string(sequence.seed) + ' ';
  for (const Step& each : sequence.steps) text += to_text(each);
  return text + sequence.end + ' ' + hexadecimal(sequence.checksum);
}

std::string to_text(const Recording& recording) {
  std::string text = fmt::format("{}\ngenerator {}\ndevices {}\nmachine {}\n", first_line, recording.generator,
                                 recording.devices, recording.machine);
  for (const RecordedSequence& each : recording.sequences) text += to_text(each) + '\n';
  return text;
}

std::string hexadecimal(std::uint32_t value) {
  return fmt::format("{:08x}", value);
}

RecordedSequence parse_sequence(std::string_view line, const std::string& source) {
  RecordedSequence sequence;
  if (!read_sequence(line, sequence))
    throw std::runtime_error(fmt::format("{}: this is no sequence: {}.", source, line.substr(0, 60)));
  return sequence;
}

Recording parse_recording(std::string_view text, const std::string& source) {
  Recording recording;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const bool of_sequence = !line.empty() && line.front() >= '0' && line.front() <= '9';
    RecordedSequence sequence;
    if (number == 1 ? line == first_line : !of_sequence && read_heading(line, recording)) continue;
    if (number == 1 || !read_sequence(line, sequence))
      throw std::runtime_error(fmt::format("{}, line {}: this is no recording of sequences.", source, number));
    recording.sequences.push_back(std::move(sequence));
  }
  return recording;
}

std::uint32_t checksum_of_calls(std::uint64_t seed, int devices, const std::vector<Step>& steps) {
  Generator generator{seed, devices};
  for (const Step& each : steps) {
    if (!generator.next()) break;
    generator.answered(each.code);
  }
  return generator.checksum().value();
}

std::string call_of_step(std::uint64_t seed, int devices, const std::vector<Step>& steps, std::size_t step) {
  Generator generator{seed, devices};
  for (std::size_t index = 0;; ++index) {
    const auto call = generator.next();
    if (!call) return "the end";
    if (index == step) return text(*call);
    if (index >= steps.size()) return "a call behind the end";
    generator.answered(steps[index].code);
  }
}

}  // namespace cuvmm::conformance
