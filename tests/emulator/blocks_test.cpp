// Kernels that are written by blocks: their turns, their accesses, and how they end.
#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>

#include "multicast.hpp"

namespace cuvmm::emulator {
namespace {

using namespace test;

using Body = std::function<void(const BlockCall&)>;

// A kernel named "blocks" of two numbers, the first of which is an address of which it touches 64 bytes.
HostKernel by_blocks(Body body) {
  HostKernel kernel;
  kernel.name = "blocks";
  kernel.argument_bytes = {sizeof(std::uint64_t), sizeof(std::uint64_t)};
  kernel.views = [](const KernelArguments& given) {
    return std::vector<KernelView>{{given.get<std::uint64_t>(0), 64, true}};
  };
  kernel.run_block = std::move(body);
  return kernel;
}

Configuration running(Body body, Scheduler scheduler = Scheduler::threaded, int devices = 1) {
  Configuration configuration = with_multicast(devices);
  configuration.scheduler = scheduler;
  configuration.kernels = {by_blocks(std::move(body))};
  return configuration;
}

CUresult launch(Emulated& cuda, CUstream stream, unsigned blocks, std::uint64_t address, std::uint64_t number = 0) {
  void* parameters[] = {&address, &number};
  return cuda->cuLaunchKernel(cuda.function("blocks"), blocks, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
}

std::uint32_t look_at(const BlockCall& call, std::uint64_t address) {
  return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(call.memory.read(address, 4))))
      .load(std::memory_order_acquire);
}
void add_to(const BlockCall& call, std::uint64_t address, std::uint32_t number) {
  std::atomic_ref(*reinterpret_cast<std::uint32_t*>(call.memory.write(address, 4)))
      .fetch_add(number, std::memory_order_release);
}
void wait_for(const BlockCall& call, std::uint64_t address, std::uint32_t number) {
  while (look_at(call, address) < number) call.memory.give_way();
}
std::uint32_t word(Emulated& cuda, CUdeviceptr address) {
  std::uint32_t value = 0;
  EXPECT_ANSWER(SUCCESS, *cuda, cuMemcpyDtoH(&value, address, sizeof value));
  return value;
}

// The first waits for the last, and that for all others.
TEST(Blocks, OfALaunchWaitForOneAnother) {
  for (const Scheduler scheduler : {Scheduler::threaded, Scheduler::stepped}) {
    Emulated cuda(running(
        [](const BlockCall& call) {
          const auto begin = call.arguments.get<std::uint64_t>(0);
          if (call.block == 0) return wait_for(call, begin + 4, 1);
          add_to(call, begin, 1);
          if (call.block + 1 < call.blocks) return;
          wait_for(call, begin, call.blocks - 1);
          add_to(call, begin + 4, 1);
        },
        scheduler));
    const CUdeviceptr range = cuda.mapped();
    EXPECT_EQ(launch(cuda, nullptr, 40, range), CUDA_SUCCESS);
    EXPECT_ANSWER(SUCCESS, *cuda, cuCtxSynchronize());
    EXPECT_EQ(word(cuda, range), 39U);
  }
}

// Each launch, of a stream of its own, waits for all others: none is kept from its turn.
TEST(Blocks, OfManyLaunchesWaitForOneAnother) {
  for (const Scheduler scheduler : {Scheduler::threaded, Scheduler::stepped}) {
    constexpr std::uint32_t launches = 12;
    Emulated cuda(running(
        [](const BlockCall& call) {
          const auto begin = call.arguments.get<std::uint64_t>(0);
          for (std::uint32_t round = 1; round <= 5; ++round) {
            add_to(call, begin, 1);
            wait_for(call, begin, launches * round);
          }
        },
        scheduler));
    const CUdeviceptr range = cuda.mapped();
    for (std::uint32_t count = 0; count < launches; ++count) {
      CUstream stream = nullptr;
      EXPECT_ANSWER(SUCCESS, *cuda, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      EXPECT_EQ(launch(cuda, stream, 1, range), CUDA_SUCCESS);
    }
    EXPECT_ANSWER(SUCCESS, *cuda, cuCtxSynchronize());
    EXPECT_EQ(word(cuda, range), 5 * launches);
  }
}

TEST(Blocks, BeginAnewWithEachLaunchOfAGraph) {
  Emulated cuda(running([](const BlockCall& call) {
    const auto begin = call.arguments.get<std::uint64_t>(0);
    add_to(call, begin, 1);
    wait_for(call, begin, call.blocks);
    call.memory.give_way();
    add_to(call, begin + 4, 1);
  }));
  const CUdeviceptr range = cuda.mapped();
  CUstream stream = nullptr;
  EXPECT_ANSWER(SUCCESS, *cuda, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_ANSWER(SUCCESS, *cuda, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(launch(cuda, stream, 3, range), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_ANSWER(SUCCESS, *cuda, cuStreamEndCapture(stream, &graph));
  EXPECT_ANSWER(SUCCESS, *cuda, cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int count = 0; count < 4; ++count) EXPECT_ANSWER(SUCCESS, *cuda, cuGraphLaunch(exec, stream));
  EXPECT_ANSWER(SUCCESS, *cuda, cuStreamSynchronize(stream));
  EXPECT_EQ(word(cuda, range), 12U);
  EXPECT_EQ(word(cuda, range + 4), 12U);
}

// What a launch of one block ends in that does `body`, given memory of device 0 and, at a distance, an address.
CUresult ends_in(const Body& body, const std::function<CUdeviceptr(Team&)>& address) {
  Team team(running(body, Scheduler::threaded, 2));
  team.set_up();
  EXPECT_EQ(launch(team.cuda, nullptr, 1, address(team)), CUDA_SUCCESS);
  const CUresult end = team.cuda->cuCtxSynchronize();
  EXPECT_EQ(team.cuda->cuCtxSynchronize(), end) << "it stays";
  team.cuda.use(1);
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuCtxSynchronize());  // with that device
  return end;
}

TEST(Blocks, TouchWhatTheDeviceMayAlone) {
  const auto read = [](const BlockCall& call) { (void)call.memory.read(call.arguments.get<std::uint64_t>(0), 16); };
  const auto write = [](const BlockCall& call) { (void)call.memory.write(call.arguments.get<std::uint64_t>(0), 4); };
  const auto own = [](Team& team) { return team.members[0]; };
  const auto last = [](Team& team) { return team.members[0] + chunk - 16; };
  const auto beyond = [](Team& team) { return team.members[0] + chunk; };
  const auto odd = [](Team& team) { return team.members[0] + 8; };
  const auto others = [](Team& team) { return team.members[1]; };
  const auto read_only = [](Team& team) {
    return team.cuda.mapped(chunk, on_device(1), grant_device(0, CU_MEM_ACCESS_FLAGS_PROT_READ));
  };
  const auto heap = [](Team& team) {
    CUdeviceptr address = 0;
    EXPECT_ANSWER(SUCCESS, *team.cuda, cuMemAlloc(&address, 64));
    return address;
  };
  EXPECT_EQ(ends_in(read, own), CUDA_SUCCESS);
  EXPECT_EQ(ends_in(write, own), CUDA_SUCCESS);
  EXPECT_EQ(ends_in(read, last), CUDA_SUCCESS);
  EXPECT_EQ(ends_in(read, beyond), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ends_in(read, odd), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(ends_in(write, odd), CUDA_SUCCESS);
  EXPECT_EQ(ends_in(read, others), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ends_in(read, read_only), CUDA_SUCCESS);
  EXPECT_EQ(ends_in(write, read_only), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ends_in(write, heap), CUDA_SUCCESS);
}

TEST(Blocks, ReachMulticastAddressesByMultimemAlone) {
  const auto multicast = [](Team& team) { return team.multicast; };
  const auto own = [](Team& team) { return team.members[0]; };
  const auto plainly = [](const BlockCall& call) { (void)call.memory.read(call.arguments.get<std::uint64_t>(0), 4); };
  const auto by_multimem = [](const BlockCall& call) {
    const auto at = call.arguments.get<std::uint64_t>(0);
    const multimem::Form form{multimem::Instruction::store, multimem::Type::u32};
    const std::uint32_t nine = 9;
    multimem::store(call.memory.write_multicast(at, 4), 0, form, &nine);
    std::uint32_t sum = 0;
    multimem::load_reduce(call.memory.read_multicast(at, 4), 0, {}, &sum);  // of f32: of two bits of 9, none but 0
    multimem::load_reduce(call.memory.read_multicast(at, 4), 0,
                          {multimem::Instruction::load_reduce, multimem::Type::u32}, &sum);
    EXPECT_EQ(sum, 18U);
  };
  EXPECT_EQ(ends_in(plainly, multicast), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ends_in(plainly, own), CUDA_SUCCESS);
  EXPECT_EQ(ends_in(by_multimem, multicast), CUDA_SUCCESS);
  EXPECT_EQ(ends_in(by_multimem, own), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(Blocks, NeedAliasFencesAsOtherKernelsDo) {
  for (const bool fence : {true, false}) {
    const auto body = [fence](const BlockCall& call) {
      const std::uint32_t one = 1;
      multimem::reduce(call.memory.write_multicast(call.arguments.get<std::uint64_t>(0), 4), 0,
                       {multimem::Instruction::reduce, multimem::Type::u32}, &one);
      if (fence) call.memory.alias_fence();
      EXPECT_EQ(look_at(call, call.arguments.get<std::uint64_t>(1)), 1U);
    };
    Team team(running(body));
    team.set_up();
    EXPECT_EQ(launch(team.cuda, nullptr, 1, team.multicast, team.members[0]), CUDA_SUCCESS);
    EXPECT_EQ(team.cuda->cuCtxSynchronize(), fence ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
  }
}

// What is on a block's stack.
class Counted {
 public:
  explicit Counted(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~Counted() { --alive_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  Counted(Counted&&) = delete;
  Counted& operator=(Counted&&) = delete;

 private:
  std::atomic<int>& alive_;
};

TEST(Blocks, AreUnwoundWithWhatTheyWorkFor) {
  std::atomic<int> alive{0};
  const auto waits_for_ever = [&alive](const BlockCall& call) {
    const Counted counted(alive);
    try {
      wait_for(call, call.arguments.get<std::uint64_t>(0), 1);
    } catch (...) {
      const Counted while_unwinding(alive);
      throw;
    }
  };
  {
    Emulated cuda(running(waits_for_ever, Scheduler::stepped));
    const CUdeviceptr range = cuda.mapped();
    EXPECT_EQ(launch(cuda, nullptr, 3, range), CUDA_SUCCESS);
    EXPECT_EQ(alive, 0);
    cuda->engine().step();
    EXPECT_EQ(alive, 3);
    EXPECT_ANSWER(SUCCESS, *cuda, cuDevicePrimaryCtxReset(0));
    EXPECT_EQ(alive, 0);
  }
  {
    Emulated cuda(running(waits_for_ever, Scheduler::stepped));
    EXPECT_EQ(launch(cuda, nullptr, 2, cuda.mapped()), CUDA_SUCCESS);
    cuda->engine().step();
    EXPECT_EQ(alive, 2);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Blocks, ThatThrowEndTheLaunch) {
  for (const bool throws : {true, false}) {
    std::atomic<int> alive{0};
    Emulated cuda(running([&alive, throws](const BlockCall& call) {
      const Counted counted(alive);
      if (call.block == 1 && throws) throw std::runtime_error("enough");
      call.memory.give_way();
    }));
    EXPECT_EQ(launch(cuda, nullptr, 3, cuda.mapped()), CUDA_SUCCESS);
    EXPECT_EQ(cuda->cuCtxSynchronize(), throws ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
    EXPECT_EQ(alive, 0);
  }
}

TEST(Blocks, MustNotCallTheDriver) {
  api::EmulatedDriver* driver = nullptr;
  CUresult before = CUDA_SUCCESS, after = CUDA_SUCCESS;
  Emulated cuda(running([&](const BlockCall& call) {
    before = driver->cuCtxSynchronize();
    call.memory.give_way();
    after = driver->cuCtxSynchronize();
  }));
  driver = &*cuda;
  EXPECT_EQ(launch(cuda, nullptr, 1, cuda.mapped()), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *cuda, cuCtxSynchronize());
  EXPECT_EQ(before, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(after, CUDA_ERROR_NOT_PERMITTED);
}

// Memory that goes under a launch that waits: refused by the strict driver, a fault of the faithful one.
TEST(Blocks, LoseMemoryThatIsUnmapped) {
  for (const Mode mode : {Mode::strict, Mode::faithful}) {
    Configuration configuration = running(
        [](const BlockCall& call) { wait_for(call, call.arguments.get<std::uint64_t>(0), 1); }, Scheduler::stepped);
    configuration.mode = mode;
    configuration.on_warning = [](const std::string&) {};
    Emulated cuda(configuration);
    const CUdeviceptr range = cuda.mapped();
    EXPECT_EQ(launch(cuda, nullptr, 1, range), CUDA_SUCCESS);
    cuda->engine().step();
    if (mode == Mode::strict) {
      EXPECT_ANSWER(ERROR_INVALID_VALUE, *cuda, cuMemUnmap(range, chunk));
      continue;
    }
    EXPECT_ANSWER(SUCCESS, *cuda, cuMemUnmap(range, chunk));
    EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *cuda, cuCtxSynchronize());
  }
}

// The same while it is running and does not give way.
TEST(Blocks, LoseMemoryThatIsUnmappedMeanwhile) {
  for (const bool unmapped : {true, false}) {
    std::atomic<bool> touched{false}, go_on{false};
    Configuration configuration = running([&](const BlockCall& call) {
      add_to(call, call.arguments.get<std::uint64_t>(0), 1);
      touched = true;
      while (!go_on) std::this_thread::yield();
    });
    configuration.mode = Mode::faithful;
    configuration.on_warning = [](const std::string&) {};
    Emulated cuda(configuration);
    const CUdeviceptr range = cuda.mapped();
    EXPECT_EQ(launch(cuda, nullptr, 1, range), CUDA_SUCCESS);
    while (!touched) std::this_thread::yield();
    if (unmapped) EXPECT_ANSWER(SUCCESS, *cuda, cuMemUnmap(range, chunk));
    go_on = true;
    EXPECT_EQ(cuda->cuCtxSynchronize(), unmapped ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS);
  }
}

// A block goes on where it stopped, in whatever thread; and is gone on with while others that block are away.
TEST(Blocks, GoOnInOtherThreads) {
  std::atomic<int> changes{0};
  Emulated cuda(running([&](const BlockCall& call) {
    const auto begin = call.arguments.get<std::uint64_t>(0);
    auto last = std::this_thread::get_id();
    for (int count = 0; count < 200; ++count) {
      add_to(call, begin + std::uint64_t{4} * call.block, 1);
      call.memory.give_way();
      if (std::this_thread::get_id() != last) ++changes;
      last = std::this_thread::get_id();
    }
  }));
  const CUdeviceptr range = cuda.mapped();
  EXPECT_EQ(launch(cuda, nullptr, 4, range), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a worker begins, this thread helps from now on
  EXPECT_ANSWER(SUCCESS, *cuda, cuCtxSynchronize());
  for (unsigned block = 0; block < 4; ++block) EXPECT_EQ(word(cuda, range + std::uint64_t{4} * block), 200U);
}

}  // namespace
}  // namespace cuvmm::emulator
