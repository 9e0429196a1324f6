// Emulated multimem: which instructions there are, their arithmetic, and the check of alias fences.
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <thread>
#include <tuple>

#include "multicast.hpp"

namespace cuvmm::emulator {
namespace {

using namespace test;
using multimem::Accumulation;
using multimem::bytes_of;
using multimem::Form;
using multimem::Instruction;
using multimem::Operation;
using multimem::Order;
using multimem::Type;
using multimem::why_not;

constexpr Type types[] = {Type::u32, Type::s32,   Type::u64,  Type::s64,    Type::b32, Type::b64,
                          Type::f16, Type::f16x2, Type::bf16, Type::bf16x2, Type::f32, Type::f64};
constexpr Operation operations[] = {Operation::add,     Operation::minimum, Operation::maximum,
                                    Operation::bit_and, Operation::bit_or,  Operation::bit_xor};
constexpr Instruction instructions[] = {Instruction::load_reduce, Instruction::store, Instruction::reduce};
constexpr Order orders[] = {Order::weak, Order::relaxed, Order::acquire, Order::release};

// The instructions of PTX for sm_90, told anew in another way: by the lists of the ISA.
bool exists(const Form& form) {
  static const std::set<std::pair<Type, unsigned>> shapes = {
      {Type::u32, 1},    {Type::s32, 1},    {Type::u64, 1},   {Type::s64, 1},    {Type::b32, 1},   {Type::b64, 1},
      {Type::f32, 1},    {Type::f64, 1},    {Type::f16x2, 1}, {Type::bf16x2, 1}, {Type::f16, 2},   {Type::f16, 4},
      {Type::f16, 8},    {Type::bf16, 2},   {Type::bf16, 4},  {Type::bf16, 8},   {Type::f16x2, 2}, {Type::f16x2, 4},
      {Type::bf16x2, 2}, {Type::bf16x2, 4}, {Type::f32, 2},   {Type::f32, 4}};
  static const std::set<std::pair<Instruction, Order>> with_order = {
      {Instruction::load_reduce, Order::weak},    {Instruction::load_reduce, Order::relaxed},
      {Instruction::load_reduce, Order::acquire}, {Instruction::store, Order::weak},
      {Instruction::store, Order::relaxed},       {Instruction::store, Order::release},
      {Instruction::reduce, Order::relaxed},      {Instruction::reduce, Order::release}};
  static const std::set<Type> add{Type::u32,  Type::s32,    Type::u64, Type::f16, Type::f16x2,
                                  Type::bf16, Type::bf16x2, Type::f32, Type::f64};
  static const std::set<Type> least{Type::u32, Type::s32,   Type::u64,  Type::s64,
                                    Type::f16, Type::f16x2, Type::bf16, Type::bf16x2};
  static const std::set<Type> bits{Type::b32, Type::b64};
  static const std::set<Type> halves{Type::f16, Type::f16x2, Type::bf16, Type::bf16x2};
  const bool shaped = shapes.contains({form.type, form.vector}) && with_order.contains({form.instruction, form.order});
  const bool wide = form.accumulation == Accumulation::f32;
  if (form.instruction == Instruction::store) return shaped && !wide;
  if (wide &&
      (form.instruction != Instruction::load_reduce || form.operation != Operation::add || !halves.contains(form.type)))
    return false;
  switch (form.operation) {
    case Operation::add:
      return shaped && add.contains(form.type);
    case Operation::minimum:
    case Operation::maximum:
      return shaped && least.contains(form.type) &&
             (form.instruction != Instruction::reduce || form.vector > 1 || !halves.contains(form.type));
    default:
      return shaped && bits.contains(form.type);
  }
}

template <class Work>
void for_each_form(Work&& work) {
  for (const Instruction instruction : instructions)
    for (const Type type : types)
      for (const Operation operation : operations)
        for (const unsigned vector : {1U, 2U, 3U, 4U, 8U, 16U})
          for (const Order order : orders)
            for (const Accumulation accumulation : {Accumulation::native, Accumulation::f32})
              work(Form{instruction, type, operation, vector, order, accumulation});
}

std::string name(const Form& form) {
  return "instruction " + std::to_string(static_cast<int>(form.instruction)) + " type " +
         std::to_string(static_cast<int>(form.type)) + " operation " +
         std::to_string(static_cast<int>(form.operation)) + " vector " + std::to_string(form.vector) + " order " +
         std::to_string(static_cast<int>(form.order)) + " accumulation " +
         std::to_string(static_cast<int>(form.accumulation));
}

// Memory of some devices, without a driver.
class Replicas {
 public:
  explicit Replicas(std::size_t count) : bytes_(count) {
    for (auto& replica : bytes_) begins_.push_back(replica.data());
  }
  [[nodiscard]] MulticastWindow window() const { return {begins_, most}; }
  template <class Value>
  void put(std::size_t device, std::uint64_t offset, Value value) {
    std::memcpy(bytes_[device].data() + offset, &value, sizeof value);
  }
  template <class Value>
  [[nodiscard]] Value get(std::size_t device, std::uint64_t offset = 0) const {
    Value value;
    std::memcpy(&value, bytes_[device].data() + offset, sizeof value);
    return value;
  }

 private:
  static constexpr std::size_t most = 64;
  struct alignas(16) Bytes : std::array<std::byte, most> {};
  std::vector<Bytes> bytes_;
  std::vector<std::byte*> begins_;
};

void execute(const MulticastWindow& window, const Form& form, void* value) {
  switch (form.instruction) {
    case Instruction::load_reduce:
      return multimem::load_reduce(window, 0, form, value);
    case Instruction::store:
      return multimem::store(window, 0, form, value);
    case Instruction::reduce:
      return multimem::reduce(window, 0, form, value);
  }
}

TEST(Multimem, HasTheInstructionsOfPtxAndNoOthers) {
  std::size_t existing = 0;
  for_each_form([&](const Form& form) {
    ASSERT_EQ(why_not(form).empty(), exists(form)) << name(form) << ": " << why_not(form);
    existing += exists(form) ? 1 : 0;
    Replicas replicas(2);
    std::array<std::byte, 64> value{};
    if (exists(form))
      EXPECT_NO_THROW(execute(replicas.window(), form, value.data())) << name(form);
    else
      EXPECT_THROW(execute(replicas.window(), form, value.data()), std::invalid_argument) << name(form);
  });
  EXPECT_GT(existing, 300U);
}

TEST(Multimem, AStoreReachesEveryReplicaAndNoMore) {
  for_each_form([&](const Form& form) {
    if (form.instruction != Instruction::store || !exists(form)) return;
    Replicas replicas(3);
    std::array<unsigned char, 16> value{};
    for (std::size_t at = 0; at < value.size(); ++at) value[at] = static_cast<unsigned char>(at + 1);
    multimem::store(replicas.window(), 16, form, value.data());
    for (std::size_t device = 0; device < 3; ++device)
      for (std::size_t at = 0; at < 48; ++at) {
        const bool inside = at >= 16 && at < 16 + bytes_of(form);
        ASSERT_EQ(replicas.get<unsigned char>(device, at), inside ? at - 15 : 0U) << name(form) << " byte " << at;
      }
  });
}

template <class Value>
Value loaded(const std::vector<Value>& values, Type type, Operation operation) {
  Replicas replicas(values.size());
  for (std::size_t device = 0; device < values.size(); ++device) replicas.put(device, 0, values[device]);
  Value result{};
  multimem::load_reduce(replicas.window(), 0, {Instruction::load_reduce, type, operation}, &result);
  return result;
}

// What red leaves in a replica that held `before`.
template <class Value>
Value reduced(Value before, Value operand, Type type, Operation operation) {
  Replicas replicas(2);
  replicas.put(0, 0, before);
  replicas.put(1, 0, before);
  multimem::reduce(replicas.window(), 0, {Instruction::reduce, type, operation}, &operand);
  EXPECT_EQ(std::memcmp(&before, &before, sizeof before), 0);
  EXPECT_EQ(replicas.get<Value>(0), replicas.get<Value>(1));
  return replicas.get<Value>(0);
}

TEST(Multimem, IntegersWrapAndCompareBySign) {
  EXPECT_EQ(loaded<std::uint32_t>({1, 2, 0xffff'ffff}, Type::u32, Operation::add), 2U);
  EXPECT_EQ(loaded<std::int32_t>({2147483647, 1}, Type::s32, Operation::add), -2147483647 - 1);
  EXPECT_EQ(loaded<std::uint64_t>({~0ULL, 1, 5}, Type::u64, Operation::add), 5U);
  EXPECT_EQ(loaded<std::uint32_t>({1, 0xffff'ffff}, Type::u32, Operation::minimum), 1U);
  EXPECT_EQ(loaded<std::uint32_t>({1, 0xffff'ffff}, Type::u32, Operation::maximum), 0xffff'ffffU);
  EXPECT_EQ(loaded<std::int32_t>({1, -1}, Type::s32, Operation::minimum), -1);
  EXPECT_EQ(loaded<std::int32_t>({1, -1}, Type::s32, Operation::maximum), 1);
  EXPECT_EQ(loaded<std::int64_t>({1LL << 40, -(1LL << 40)}, Type::s64, Operation::minimum), -(1LL << 40));
  EXPECT_EQ(loaded<std::uint64_t>({1ULL << 40, 1ULL << 63}, Type::u64, Operation::maximum), 1ULL << 63);
  EXPECT_EQ(reduced<std::uint32_t>(0xffff'ffff, 3, Type::u32, Operation::add), 2U);
  EXPECT_EQ(reduced<std::int64_t>(-7, 3, Type::s64, Operation::maximum), 3);
  EXPECT_EQ(reduced<std::int32_t>(-7, 3, Type::s32, Operation::minimum), -7);
}

TEST(Multimem, BitsAreCombined) {
  EXPECT_EQ(loaded<std::uint32_t>({0b1100, 0b1010}, Type::b32, Operation::bit_and), 0b1000U);
  EXPECT_EQ(loaded<std::uint32_t>({0b1100, 0b1010}, Type::b32, Operation::bit_or), 0b1110U);
  EXPECT_EQ(loaded<std::uint64_t>({0b1100, 0b1010, 1}, Type::b64, Operation::bit_xor), 0b0111U);
  EXPECT_EQ(reduced<std::uint64_t>(0b1100, 0b1010, Type::b64, Operation::bit_and), 0b1000U);
  EXPECT_EQ(reduced<std::uint32_t>(0b1100, 0b1010, Type::b32, Operation::bit_xor), 0b0110U);
  EXPECT_EQ(reduced<std::uint32_t>(0b1100, 0b1010, Type::b32, Operation::bit_or), 0b1110U);
}

TEST(Multimem, FloatsAddInTheOrderOfTheTeam) {
  EXPECT_EQ(loaded<float>({16777216.0F, 1, 1}, Type::f32, Operation::add), 16777216.0F) << "rounded each time";
  EXPECT_EQ(loaded<float>({1, 1, 16777216.0F}, Type::f32, Operation::add), 16777218.0F);
  EXPECT_EQ(loaded<double>({1e300, 1, -1e300}, Type::f64, Operation::add), 0);
  EXPECT_EQ(reduced<double>(0.5, 0.25, Type::f64, Operation::add), 0.75);
  EXPECT_EQ(reduced<float>(0.5F, 0.25F, Type::f32, Operation::add), 0.75F);
  EXPECT_TRUE(std::isnan(loaded<float>({1, std::numeric_limits<float>::quiet_NaN()}, Type::f32, Operation::add)));
}

std::uint32_t pair(std::uint16_t low, std::uint16_t high) {
  return low | static_cast<std::uint32_t>(high) << 16;
}

TEST(Multimem, HalvesRoundAfterEachAdditionUnlessTheyAccumulateInF32) {
  // 2048 + 1 is halfway between two f16, and goes to the even one; in f32 nothing is lost until the end.
  const std::uint16_t big = multimem::f16_of(2048), one = multimem::f16_of(1);
  const auto sum = [&](Accumulation accumulation, Type type, const std::vector<std::uint32_t>& values) {
    Replicas replicas(values.size());
    for (std::size_t device = 0; device < values.size(); ++device) replicas.put(device, 0, values[device]);
    std::uint32_t result = 0;
    multimem::load_reduce(replicas.window(), 0,
                          {Instruction::load_reduce, type, Operation::add, 1, Order::relaxed, accumulation}, &result);
    return result;
  };
  const std::vector<std::uint32_t> halves{pair(big, one), pair(one, one), pair(one, one)};
  EXPECT_EQ(sum(Accumulation::native, Type::f16x2, halves), pair(multimem::f16_of(2048), multimem::f16_of(3)));
  EXPECT_EQ(sum(Accumulation::f32, Type::f16x2, halves), pair(multimem::f16_of(2050), multimem::f16_of(3)));
  const std::uint16_t large = multimem::bf16_of(256), unit = multimem::bf16_of(1);
  const std::vector<std::uint32_t> brains{pair(large, unit), pair(unit, unit), pair(unit, unit)};
  EXPECT_EQ(sum(Accumulation::native, Type::bf16x2, brains), pair(multimem::bf16_of(256), multimem::bf16_of(3)));
  EXPECT_EQ(sum(Accumulation::f32, Type::bf16x2, brains), pair(multimem::bf16_of(258), multimem::bf16_of(3)));
  const std::uint16_t most = multimem::f16_of(65504);
  EXPECT_EQ(sum(Accumulation::f32, Type::f16x2, {pair(most, 0), pair(most, 0)}), 0x7c00U) << "infinity";
}

TEST(Multimem, HalvesCompareWithoutNaNs) {
  const std::uint16_t nan = 0x7e00, minus_zero = 0x8000, plus_zero = 0, two = multimem::f16_of(2);
  const auto least = [&](std::uint16_t one, std::uint16_t other, Operation operation) {
    return loaded<std::uint32_t>({pair(one, one), pair(other, other)}, Type::f16x2, operation) & 0xffffU;
  };
  EXPECT_EQ(least(nan, two, Operation::minimum), two);
  EXPECT_EQ(least(two, nan, Operation::maximum), two);
  EXPECT_EQ(least(nan, nan, Operation::minimum) & 0x7c00U, 0x7c00U);
  EXPECT_EQ(least(plus_zero, minus_zero, Operation::minimum), minus_zero);
  EXPECT_EQ(least(minus_zero, plus_zero, Operation::maximum), plus_zero);
  EXPECT_EQ(least(multimem::f16_of(-3), two, Operation::minimum), multimem::f16_of(-3));
}

TEST(Multimem, VectorsWorkElementByElement) {
  Replicas replicas(2);
  for (std::size_t lane = 0; lane < 4; ++lane) {
    replicas.put(0, 4 * lane, static_cast<float>(lane));
    replicas.put(1, 4 * lane, 10.0F * static_cast<float>(lane));
  }
  std::array<float, 4> values{};
  multimem::load_reduce(replicas.window(), 0, {Instruction::load_reduce, Type::f32, Operation::add, 4}, values.data());
  EXPECT_EQ(values, (std::array<float, 4>{0, 11, 22, 33}));
  multimem::reduce(replicas.window(), 0, {Instruction::reduce, Type::f32, Operation::add, 4}, values.data());
  EXPECT_EQ(replicas.get<float>(0, 12), 36);
  EXPECT_EQ(replicas.get<float>(1, 12), 63);
  const std::array<std::uint16_t, 8> halves{1, 2, 3, 4, 5, 6, 7, 8};
  multimem::store(replicas.window(), 16, {Instruction::store, Type::bf16, Operation::add, 8}, halves.data());
  EXPECT_EQ(replicas.get<std::uint16_t>(1, 30), 8);
}

TEST(Multimem, ReductionsOfManyThreadsAllCount) {
  Replicas replicas(2);
  constexpr std::uint32_t rounds = 2000;
  std::vector<std::thread> threads;
  for (int count = 0; count < 4; ++count)
    threads.emplace_back([&] {
      const std::uint32_t one = 1;
      const std::uint32_t halves = pair(multimem::f16_of(1), 0);
      for (std::uint32_t round = 0; round < rounds; ++round) {
        multimem::reduce(replicas.window(), 0, {Instruction::reduce, Type::u32}, &one);
        if (round < 500) multimem::reduce(replicas.window(), 4, {Instruction::reduce, Type::f16x2}, &halves);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t device = 0; device < 2; ++device) {
    EXPECT_EQ(replicas.get<std::uint32_t>(device), 4 * rounds);
    EXPECT_EQ(multimem::f32_of_f16(replicas.get<std::uint16_t>(device, 4)), 2000.0F);
  }
}

TEST(Multimem, StaysWithinItsWindowAndAligned) {
  Replicas replicas(1);
  std::array<float, 4> value{};
  const Form vector{Instruction::store, Type::f32, Operation::add, 4};
  const auto kind = [&](std::uint64_t offset) {
    try {
      multimem::store(replicas.window(), offset, vector, value.data());
    } catch (const multimem::Fault& fault) {
      return fault.kind() == multimem::Fault::Kind::misaligned ? "misaligned" : "outside";
    }
    return "done";
  };
  EXPECT_STREQ(kind(48), "done");
  EXPECT_STREQ(kind(40), "misaligned");
  EXPECT_STREQ(kind(52), "outside");
  EXPECT_STREQ(kind(64), "outside");
  EXPECT_STREQ(kind(~0ULL), "outside");
}

// All 65536 of each kind go to f32 and back; and every f32 between two neighbours goes to the nearer one.
TEST(SixteenBitFloats, ConvertWithoutLossAndRoundToTheNearest) {
  const auto checked = [](float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float), std::uint16_t infinity) {
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      const float value = widen(half);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(widen(narrow(value)))) << bits;
        continue;
      }
      ASSERT_EQ(narrow(value), half) << bits;
      if ((half & 0x7fffU) >= infinity - 1U) continue;
      const float next = widen(static_cast<std::uint16_t>(half + 1));
      const float middle = value + (next - value) / 2;
      const auto even = static_cast<std::uint16_t>((half & 1U) == 0 ? half : half + 1);
      ASSERT_EQ(narrow(middle), even) << bits;
      ASSERT_EQ(narrow(std::nextafter(middle, value)), half) << bits;
      ASSERT_EQ(narrow(std::nextafter(middle, next)), half + 1) << bits;
    }
  };
  checked(multimem::f32_of_f16, multimem::f16_of, 0x7c00);
  checked(multimem::f32_of_bf16, multimem::bf16_of, 0x7f80);
  EXPECT_EQ(multimem::f16_of(65520), 0x7c00);
  EXPECT_EQ(multimem::f16_of(65519.996F), 0x7bff);
  EXPECT_EQ(multimem::f16_of(-1e30F), 0xfc00);
  EXPECT_EQ(multimem::bf16_of(std::numeric_limits<float>::max()), 0x7f80);
}

// Kernels that count through the multicast address, and look at the counter at its memory's own.
class AliasFences : public testing::Test {
 protected:
  static constexpr Form add_one{Instruction::reduce, Type::u32, Operation::add, 1, Order::release};

  // What the launch ends in: in strict mode, where no fence is missing, with success.
  CUresult ends_in(const std::function<void(const multimem::Accesses&)>& work, Mode mode = Mode::strict) {
    Configuration configuration = with_multicast(1, mode);
    configuration.on_warning = [this](const std::string& warning) { warnings_.push_back(warning); };
    configuration.kernels = {body_at(
        64, [work](const KernelCall& call) { work(multimem::Accesses(call)); }, true)};
    Team team(configuration);
    team.set_up();
    EXPECT_EQ(team.cuda.launch(team.cuda.function("body"), nullptr, team.multicast, team.members[0]), CUDA_SUCCESS);
    return team.cuda->cuCtxSynchronize();
  }

  std::vector<std::string> warnings_;
};

TEST_F(AliasFences, AReadBehindAReductionNeedsOne) {
  for (const bool fence : {true, false})
    EXPECT_EQ(ends_in([fence](const multimem::Accesses& memory) {
                memory.reduce<add_one>(0, 0, std::array{1U});
                if (fence) memory.alias_fence();
                EXPECT_EQ(memory.load<std::uint32_t>(1, 0), 1U);
              }),
              fence ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(AliasFences, AMultimemReadBehindAnOrdinaryWriteNeedsOne) {
  for (const bool fence : {true, false})
    EXPECT_EQ(ends_in([fence](const multimem::Accesses& memory) {
                memory.store_here<std::uint32_t>(1, 4, 9);
                if (fence) memory.alias_fence();
                const auto sum = memory.load_reduce<Form{.type = Type::u32}, std::uint32_t>(0, 4);
                EXPECT_EQ(sum[0], 9U);
              }),
              fence ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(AliasFences, AFenceBeforeTheWriteIsNoUse) {
  EXPECT_EQ(ends_in([](const multimem::Accesses& memory) {
              memory.alias_fence();
              memory.reduce<add_one>(0, 0, std::array{1U});
              (void)memory.load<std::uint32_t>(1, 0);
            }),
            CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(AliasFences, OneAddressNeedsNone) {
  EXPECT_EQ(ends_in([](const multimem::Accesses& memory) {
              memory.reduce<add_one>(0, 0, std::array{1U});
              (void)memory.load_reduce<Form{.type = Type::u32}, std::uint32_t>(0, 0);
              memory.store<Form{.type = Type::f32, .vector = 4}>(0, 16, std::array<float, 4>{});
              (void)memory.load_reduce<Form{.type = Type::f32}, float>(0, 24);
              memory.add_here<std::uint32_t>(1, 32, 1);
              (void)memory.load<std::uint32_t>(1, 32);
              (void)memory.load<std::uint32_t>(1, 36);
            }),
            CUDA_SUCCESS);
}

TEST_F(AliasFences, TheEndOfALaunchIsOne) {
  Configuration configuration = with_multicast(1);
  configuration.kernels = {body_at(
      64,
      [](const KernelCall& call) {
        const multimem::Accesses memory(call);
        (void)memory.load<std::uint32_t>(1, 0);
        memory.reduce<add_one>(0, 0, std::array{1U});
      },
      true)};
  Team team(configuration);
  team.set_up();
  for (int count = 0; count < 3; ++count)
    EXPECT_EQ(team.cuda.launch(team.cuda.function("body"), nullptr, team.multicast, team.members[0]), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuCtxSynchronize());
}

// Two launches at once write the same bytes; whichever ends first, the other's end finds what is left.
TEST_F(AliasFences, LaunchesWriteOverEachOther) {
  Configuration configuration = with_multicast(2);
  configuration.kernels = {body(
      {sizeof(std::uint64_t), sizeof(std::uint64_t)},
      [](const KernelArguments& given) {
        return std::vector<KernelView>{{given.get<std::uint64_t>(0), 4, true, 4, true}};
      },
      [](const KernelCall& call) {
        multimem::Accesses(call).store<Form{.type = Type::u32}>(0, 0, std::array{1U});
        return call.tries < call.arguments.get<std::uint64_t>(1) ? KernelProgress::again : KernelProgress::done;
      })};
  Team team(configuration);
  team.set_up();
  for (const auto& [first, second] : {std::pair<std::uint64_t, std::uint64_t>{0, 9}, {9, 0}, {5, 5}}) {
    team.cuda.use(0);
    EXPECT_EQ(team.cuda.launch(team.cuda.function("body"), nullptr, team.multicast, first), CUDA_SUCCESS);
    team.cuda.use(1);
    EXPECT_EQ(team.cuda.launch(team.cuda.function("body"), nullptr, team.multicast, second), CUDA_SUCCESS);
    EXPECT_ANSWER(SUCCESS, *team.cuda, cuCtxSynchronize());
    team.cuda.use(0);
    EXPECT_ANSWER(SUCCESS, *team.cuda, cuCtxSynchronize());
  }
}

TEST_F(AliasFences, TheFaithfulModeWarns) {
  EXPECT_EQ(ends_in(
                [](const multimem::Accesses& memory) {
                  memory.reduce<add_one>(0, 0, std::array{1U});
                  (void)memory.load<std::uint32_t>(1, 0);
                },
                Mode::faithful),
            CUDA_SUCCESS);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_NE(warnings_[0].find("ALIAS-FENCE"), std::string::npos) << warnings_[0];
}

// Several devices' barriers: each counts in everybody's counter and waits at its own. The launches run until all have
// arrived, so that each sees the others' reductions.
TEST_F(AliasFences, ABarrierNeedsOneBetweenItsArrivalAndItsWait) {
  for (const bool fence : {true, false}) {
    constexpr int devices = 3;
    Configuration configuration = with_multicast(devices);
    configuration.kernels = {body(
        {sizeof(std::uint64_t), sizeof(std::uint64_t)},
        [](const KernelArguments& given) {
          return std::vector<KernelView>{{given.get<std::uint64_t>(0), 4, true, 4, true},
                                         {given.get<std::uint64_t>(1), 4, false, 4, false}};
        },
        [fence](const KernelCall& call) {
          const multimem::Accesses memory(call);
          if (call.tries == 0) {
            memory.reduce<add_one>(0, 0, std::array{1U});
            if (fence) memory.alias_fence();
          }
          return memory.load<std::uint32_t>(1, 0) == devices ? KernelProgress::done : KernelProgress::again;
        })};
    Team team(configuration);
    team.set_up();
    CUresult worst = CUDA_SUCCESS;
    for (int device = 0; device < devices; ++device) {
      team.cuda.use(device);
      EXPECT_EQ(team.cuda.launch(team.cuda.function("body"), nullptr, team.multicast,
                                 team.members[static_cast<std::size_t>(device)]),
                CUDA_SUCCESS);
    }
    for (int device = 0; device < devices; ++device) {
      team.cuda.use(device);
      if (const CUresult ended = team.cuda->cuCtxSynchronize(); ended != CUDA_SUCCESS) worst = ended;
    }
    EXPECT_EQ(worst, fence ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
  }
}

}  // namespace
}  // namespace cuvmm::emulator
