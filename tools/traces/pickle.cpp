#include "traces/pickle.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "traces/trace_error.hpp"

namespace cuvmm::traces {

namespace {

using Id = PlainValues::Id;
using Type = PlainValues::Type;

// Those that would look something up, make it or call it; to tell people what it was.
constexpr std::array<std::pair<unsigned char, std::string_view>, 13> opcodes_of_code{{
    {'c', "GLOBAL"},
    {'R', "REDUCE"},
    {'b', "BUILD"},
    {'i', "INST"},
    {'o', "OBJ"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
    {0x81, "NEWOBJ"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x92, "NEWOBJ_EX"},
    {0x93, "STACK_GLOBAL"},
}};

class Unpickler {
 public:
  explicit Unpickler(std::string_view bytes) : bytes_(bytes) {}

  PlainValues read() {
    if (take(1)[0] != '\x80') refuse("a pickle begins with its protocol");
    if (const std::uint64_t protocol = number(1); protocol < 2 || protocol > 5)
      refuse(fmt::format("protocol {} is none of those that are read, which are 2 to 5", protocol));
    while (step()) {
    }
    if (at_ != bytes_.size()) refuse(fmt::format("{} bytes follow the pickle's end", bytes_.size() - at_));
    return std::move(values_);
  }

 private:
  // --- Bytes.

  [[noreturn]] void refuse(std::string_view what) const {
    throw Broken(fmt::format("at byte {}: {}", opcode_at_, what));
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_)
      refuse(fmt::format("{} bytes are to follow, and {} are left", count, bytes_.size() - at_));
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  // With its lowest byte first.
  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view taken = take(size);
    for (std::size_t i = 0; i < size; ++i) value |= std::uint64_t{static_cast<unsigned char>(taken[i])} << (8 * i);
    return value;
  }

  // --- The stack, and what was remembered.

  void push(Id id) { stack_.push_back(id); }
  [[nodiscard]] std::size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }
  // How many values there are above the last mark.
  void require(std::size_t count) const {
    if (stack_.size() - bottom() < count) refuse("there are too few values for it");
  }
  Id pop() {
    require(1);
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  // Ends the last mark, and leaves the values above it to be taken away by drop_from().
  std::size_t end_mark() {
    if (marks_.empty()) refuse("nothing is marked");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  void drop_from(std::size_t place) { stack_.resize(place); }

  void remember(std::uint64_t place) {
    require(1);
    if (place > at_) refuse(fmt::format("no pickle of that length remembers as many as {} values", place));
    if (place >= memo_.size()) memo_.resize(place + 1, none);
    memo_[place] = stack_.back();
  }
  void recall(std::uint64_t place) {
    if (place >= memo_.size() || memo_[place] == none) refuse(fmt::format("no value {} was remembered", place));
    push(memo_[place]);
  }

  // --- What opcodes make.

  // Two's complement, lowest byte first.
  void push_long(std::uint64_t size) {
    const std::string_view taken = take(size);
    const bool negative = size != 0 && (static_cast<unsigned char>(taken[size - 1]) & 0x80) != 0;
    const unsigned char filling = negative ? 0xFF : 0;
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = 0; i < size; ++i) {
      const auto byte = static_cast<unsigned char>(taken[i]);
      if (i >= 8 && byte != filling) refuse("an integer of more than 64 bits");
      if (i >= 8) continue;
      value &= ~(std::uint64_t{0xFF} << (8 * i));
      value |= std::uint64_t{byte} << (8 * i);
    }
    push(values_.add_integer(negative, negative ? ~value + 1 : value));
  }
  void push_int() {
    const auto value = static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4)));
    const auto magnitude = static_cast<std::uint64_t>(value < 0 ? -std::int64_t{value} : std::int64_t{value});
    push(values_.add_integer(value < 0, magnitude));
  }
  void push_bytes(std::uint64_t size) {
    take(size);
    push(values_.add_bytes());
  }
  // Of the values from there on.
  void push_tuple(std::size_t from) {
    const Id list = values_.add_list();
    for (std::size_t i = from; i < stack_.size(); ++i) values_.append(list, stack_[i]);
    drop_from(from);
    push(list);
  }
  void push_tuple_of(std::size_t count) {
    require(count);
    push_tuple(stack_.size() - count);
  }
  // Adds the values from there on to the container beneath them.
  void append(std::size_t from, Type container) {
    if (from == bottom()) refuse("there is nothing that it could add to");
    const Id target = stack_[from - 1];
    if (!values_.is(target, container)) refuse(fmt::format("it adds to {}", to_string(values_.type(target))));
    if (container == Type::object && (stack_.size() - from) % 2 != 0) refuse("a key has no value");
    for (std::size_t i = from; i < stack_.size(); ++i) values_.append(target, stack_[i]);
    drop_from(from);
  }
  void append_last(std::size_t count, Type container) {
    require(count);
    append(stack_.size() - count, container);
  }
  void stop() {
    if (!marks_.empty() || stack_.size() != 1) refuse("the pickle ends with more or less than one value");
    values_.root = stack_.front();
  }

  // --- Opcodes. Each of these knows some, and answers whether it was one of them.

  bool scalar(unsigned char opcode) {
    switch (opcode) {
      case 'N':
        return push(values_.add_nothing()), true;
      case 0x88:
        return push(values_.add_boolean(true)), true;
      case 0x89:
        return push(values_.add_boolean(false)), true;
      case 'J':
        return push_int(), true;
      case 'K':
        return push(values_.add_integer(false, number(1))), true;
      case 'M':
        return push(values_.add_integer(false, number(2))), true;
      case 0x8A:
        return push_long(number(1)), true;
      case 0x8B:
        return push_long(number(4)), true;
      case 'G':
        take(8);
        return push(values_.add_real()), true;
      default:
        return false;
    }
  }
  bool text(unsigned char opcode) {
    switch (opcode) {
      case 0x8C:
        return push(values_.add_text(take(number(1)))), true;
      case 'X':
        return push(values_.add_text(take(number(4)))), true;
      case 0x8D:
        return push(values_.add_text(take(number(8)))), true;
      case 'C':
        return push_bytes(number(1)), true;
      case 'B':
        return push_bytes(number(4)), true;
      case 0x8E:
        return push_bytes(number(8)), true;
      default:
        return false;
    }
  }
  bool container(unsigned char opcode) {
    switch (opcode) {
      case '(':
        return marks_.push_back(stack_.size()), true;
      case ']':
        return push(values_.add_list()), true;
      case '}':
        return push(values_.add_object()), true;
      case ')':
        return push_tuple_of(0), true;
      case 0x85:
        return push_tuple_of(1), true;
      case 0x86:
        return push_tuple_of(2), true;
      case 0x87:
        return push_tuple_of(3), true;
      case 't':
        return push_tuple(end_mark()), true;
      case 'a':
        return append_last(1, Type::list), true;
      case 's':
        return append_last(2, Type::object), true;
      case 'e':
        return append(end_mark(), Type::list), true;
      case 'u':
        return append(end_mark(), Type::object), true;
      default:
        return false;
    }
  }
  bool memory(unsigned char opcode) {
    switch (opcode) {
      case 0x94:
        return remember(memoized_++), true;
      case 'q':
        return remember(number(1)), true;
      case 'r':
        return remember(number(4)), true;
      case 'h':
        return recall(number(1)), true;
      case 'j':
        return recall(number(4)), true;
      case 0x95:  // how long what follows is, for those who read it in pieces
        if (const std::uint64_t frame = number(8); frame > bytes_.size() - at_)
          refuse(fmt::format("a frame of {} bytes begins, and {} are left", frame, bytes_.size() - at_));
        return true;
      default:
        return false;
    }
  }

  [[noreturn]] void refuse_opcode(unsigned char opcode) const {
    for (const auto& [code, name] : opcodes_of_code)
      if (code == opcode)
        refuse(
            fmt::format("the opcode {} stands for code of a program; only plain data is read, so save the "
                        "snapshot by itself",
                        name));
    refuse(fmt::format("the opcode {:#04x} is none of those that plain data is written with", opcode));
  }

  // One opcode; false at the end.
  bool step() {
    opcode_at_ = at_;
    const auto opcode = static_cast<unsigned char>(take(1)[0]);
    if (opcode == '.') {
      stop();
      return false;
    }
    if (!memory(opcode) && !text(opcode) && !scalar(opcode) && !container(opcode)) refuse_opcode(opcode);
    return true;
  }

  static constexpr Id none = UINT32_MAX;

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  PlainValues values_;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Id> memo_;
  std::uint64_t memoized_ = 0;
};

}  // namespace

PlainValues read_pickle(std::string_view bytes) {
  return Unpickler(bytes).read();
}

}  // namespace cuvmm::traces
