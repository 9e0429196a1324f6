#include "emulator/execution/fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <utility>

#include "emulator/execution/sanitizer_fiber.hpp"
#include "emulator/memory/unmapping.hpp"

namespace cuvmm::emulator::execution {

namespace {

// What unwinds a body that will not be gone on with. No std::exception, so that what catches those lets it pass.
struct Unwinding {};

}  // namespace

struct Fiber::State {
  // Addresses with a page below them that faults, so that what runs over is seen. Memory is taken where it is touched.
  class Stack {
   public:
    Stack() : begin_(::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
      if (begin_ == MAP_FAILED) throw std::bad_alloc();
      if (::mprotect(lowest(), bytes, PROT_READ | PROT_WRITE) == 0) return;
      memory::unmap(begin_, all);
      throw std::bad_alloc();
    }
    ~Stack() { memory::unmap(begin_, all); }
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;
    Stack(Stack&&) = delete;
    Stack& operator=(Stack&&) = delete;

    [[nodiscard]] void* lowest() const noexcept { return static_cast<std::byte*>(begin_) + guard; }
    static constexpr std::size_t bytes = std::size_t{256} << 10;

   private:
    static constexpr std::size_t guard = std::size_t{64} << 10;  // at least a page, however large these are
    static constexpr std::size_t all = guard + bytes;
    void* begin_;
  };

  explicit State(std::function<void(Fiber&)> what) : body(std::move(what)) {}

  // What makecontext calls, which passes numbers of int's size alone.
  static void enter(unsigned high, unsigned low) {
    auto* const fiber = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
    State& state = *fiber->state_;
    state.sanitizer.arrive_inside();
    try {
      state.body(*fiber);
    } catch (const Unwinding&) {
    } catch (...) {
      state.thrown = std::current_exception();
    }
    state.ended = true;
    state.sanitizer.leave_for_good();
    ::setcontext(&state.outside);
  }

  void switch_inside() {
    sanitizer.leave_outside(stack.lowest(), Stack::bytes);
    ::swapcontext(&outside, &inside);
    sanitizer.arrive_outside();
  }
  void switch_outside() {
    sanitizer.leave_inside();
    ::swapcontext(&inside, &outside);
    sanitizer.arrive_inside();
  }

  std::function<void(Fiber&)> body;
  Stack stack;
  ucontext_t inside{};
  ucontext_t outside{};
  SanitizerFiber sanitizer;
  std::exception_ptr thrown;
  bool begun = false;
  bool ended = false;
  bool unwinding = false;
};

Fiber::Fiber(std::function<void(Fiber&)> body) : state_(std::make_unique<State>(std::move(body))) {
  ::getcontext(&state_->inside);
  state_->inside.uc_stack.ss_sp = state_->stack.lowest();
  state_->inside.uc_stack.ss_size = State::Stack::bytes;
  state_->inside.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&state_->inside, reinterpret_cast<void (*)()>(&State::enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
}

Fiber::~Fiber() {
  if (!state_->begun || state_->ended) return;
  state_->unwinding = true;
  state_->switch_inside();  // to its end: from now on the body cannot give way
}

bool Fiber::resume() {
  state_->begun = true;
  state_->switch_inside();
  if (state_->thrown) std::rethrow_exception(std::exchange(state_->thrown, nullptr));
  return state_->ended;
}

void Fiber::give_way() {
  if (!state_->unwinding) state_->switch_outside();
  if (state_->unwinding) throw Unwinding();
}

}  // namespace cuvmm::emulator::execution
