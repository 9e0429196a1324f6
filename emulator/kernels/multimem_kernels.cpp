#include "emulator/kernels/multimem_kernels.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "emulator/multimem.hpp"
#include "gpu/multimem_kernels.hpp"

namespace cuvmm::emulator {

namespace {

using gpu::MultimemAdd;
using gpu::MultimemAlias;
using gpu::MultimemMeet;
using gpu::MultimemStore;
using gpu::MultimemSum;
using gpu::MultimemSumBfloat16;
using namespace multimem;
using u64 = std::uint64_t;
using u32 = std::uint32_t;

constexpr u64 word = sizeof(u64);
constexpr u64 pack = 16;  // bytes of the widest instruction

// A view of the words at an argument, of which the last argument tells the number.
KernelView words_at(const KernelArguments& arguments, std::size_t index, std::size_t count, bool write, bool multimem) {
  return {arguments.get<u64>(index), arguments.get<u64>(count) * word, write, pack, multimem};
}

// The accesses of a whole range are told at once to who checks for fences: told one by one they would take longer than
// they do.
void tell_write(const KernelCall& call, std::size_t view, u64 bytes) {
  if (call.aliases != nullptr) call.aliases->wrote(view, 0, bytes);
}
void tell_read(const KernelCall& call, std::size_t view, u64 bytes) {
  if (call.aliases != nullptr) call.aliases->reads(view, 0, bytes);
}

// A kernel whose first two arguments are a multicast address and an address of ordinary memory, and whose third is the
// number of words at both. `act(window, offset, memory)` is one instruction of the form at that offset.
template <class Act>
HostKernel over_words(std::string_view name, const Form& form, Act act) {
  const bool loads = form.instruction == Instruction::load_reduce;
  return {std::string(name),
          {word, word, word},
          [loads](const KernelArguments& arguments) {
            return std::vector<KernelView>{words_at(arguments, 0, 2, !loads, true),
                                           words_at(arguments, 1, 2, loads, false)};
          },
          [loads, form, act](const KernelCall& call) {
            const u64 all = call.arguments.get<u64>(2) * word;
            const MulticastWindow& window = Accesses(call).window(0);
            tell_write(call, loads ? 1 : 0, all);
            for (u64 offset = 0; offset < all; offset += bytes_of(form))
              act(window, offset, form, call.windows[1] + offset);
            tell_read(call, loads ? 0 : 1, all);
            return KernelProgress::done;
          }};
}

constexpr Form store_pack{.instruction = Instruction::store, .type = Type::f32, .vector = 4};  // of any content
constexpr Form sum_word{.instruction = Instruction::load_reduce, .type = Type::u64};
constexpr Form add_word{.instruction = Instruction::reduce, .type = Type::u64};
constexpr Form sum_bfloat16{
    .instruction = Instruction::load_reduce, .type = Type::bf16x2, .vector = 4, .accumulation = Accumulation::f32};

HostKernel alias_kernel() {
  return {std::string(MultimemAlias::kernel),
          {word, word, word, word, word},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{
                words_at(arguments, 0, 4, true, true), words_at(arguments, 1, 4, false, false),
                words_at(arguments, 2, 4, false, false), words_at(arguments, 3, 4, true, false)};
          },
          [](const KernelCall& call) {
            const Accesses memory(call);
            const u64 all = call.arguments.get<u64>(4) * word;
            tell_write(call, 0, all);
            for (u64 offset = 0; offset < all; offset += bytes_of(store_pack))
              store(memory.window(0), offset, store_pack, call.windows[1] + offset);
            memory.alias_fence();
            tell_read(call, 2, all);
            std::memcpy(call.windows[3], call.windows[2], all);
            return KernelProgress::done;
          }};
}

// Arrives at its first call, and looks once a call, so that the scheduler goes on with other streams. Its looks are not
// told to who checks for fences: another rank may be between what it wrote and the fence behind that.
KernelProgress meet(const KernelCall& call) {
  const Accesses memory(call);
  if (call.tries == 0) {
    memory.alias_fence();
    memory.reduce<Form{.type = Type::u32, .order = Order::release}>(0, 0, std::array{u32{1}});
    memory.alias_fence();
  }
  const u32 seen = std::atomic_ref(*reinterpret_cast<u32*>(call.windows[1])).load(std::memory_order_acquire);
  const auto missing = static_cast<std::int32_t>(seen - static_cast<u32>(call.arguments.get<u64>(2)));
  if (missing < 0 && call.tries + 1 < call.arguments.get<u64>(3)) return KernelProgress::again;
  memory.store_here<u32>(2, 0, seen);
  return KernelProgress::done;
}

HostKernel meet_kernel() {
  return {std::string(MultimemMeet::kernel),
          {word, word, word, word, word},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{{arguments.get<u64>(0), sizeof(u32), true, alignof(u32), true},
                                           {arguments.get<u64>(1), sizeof(u32), false, alignof(u32)},
                                           {arguments.get<u64>(4), sizeof(u32), true, alignof(u32)}};
          },
          meet};
}

}  // namespace

std::vector<HostKernel> multimem_kernels() {
  return {over_words(MultimemStore::kernel, store_pack, store),
          over_words(MultimemSum::kernel, sum_word, load_reduce),
          over_words(MultimemAdd::kernel, add_word, reduce),
          over_words(MultimemSumBfloat16::kernel, sum_bfloat16, load_reduce),
          alias_kernel(),
          meet_kernel()};
}

}  // namespace cuvmm::emulator
