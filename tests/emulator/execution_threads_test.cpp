// Many threads at once; these tests earn their keep under ThreadSanitizer.
#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "execution_support.hpp"

namespace cuvmm::emulator::execution::test {
namespace {

constexpr int thread_count = 6;
constexpr int rounds = 120;

void in_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(thread_count);
  for (int i = 0; i < thread_count; ++i) {
    threads.emplace_back([&body, i] { body(i); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

class ManyThreads : public ExecutionTest {};

TEST_F(ManyThreads, ShareAStreamWhoseOperationsNeedNoLock) {
  const auto one = stream();
  int counter = 0;  // plain: operations of one stream never overlap
  in_threads([&](int) {
    for (int i = 0; i < rounds; ++i) {
      EXPECT_CODE(engine.submit(one, operation([&counter] {
                                  ++counter;
                                  return Outcome::done();
                                })),
                  SUCCESS);
      if (i % 16 == 0) {
        EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
      }
    }
  });
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_EQ(counter, thread_count * rounds);
}

TEST_F(ManyThreads, PassDataThroughEvents) {
  // A token goes round a ring of streams; each hop reads what the last one wrote, ordered by events alone.
  constexpr std::size_t size = 5;
  std::array<StreamPointer, size> ring;
  for (auto& member : ring) {
    member = stream();
  }
  long token = 0;
  auto point = event();
  for (int i = 0; i < 400; ++i) {
    const auto& here = ring[static_cast<std::size_t>(i) % size];
    EXPECT_CODE(engine.wait_event(here, point), SUCCESS);
    EXPECT_CODE(engine.submit(here, operation([&token, i] {
                                EXPECT_EQ(token, i);
                                ++token;
                                return Outcome::done();
                              })),
                SUCCESS);
    EXPECT_CODE(engine.record_event(point, here), SUCCESS);
  }
  EXPECT_CODE(engine.synchronize_event(point), SUCCESS);
  EXPECT_EQ(token, 400);
}

TEST_F(ManyThreads, UseTheLegacyStreamAsABarrier) {
  std::array<long, thread_count> cells{};  // each written by its stream, all read by the legacy stream
  std::mutex order;                        // sums must follow the submissions that they count
  long submitted = 0;
  in_threads([&](int me) {
    const auto mine = stream(abi::CU_STREAM_DEFAULT);
    for (int i = 0; i < rounds / 4; ++i) {
      const std::lock_guard<std::mutex> guard(order);
      EXPECT_CODE(engine.submit(mine, operation([&cells, me] {
                                  ++cells[static_cast<std::size_t>(me)];
                                  return Outcome::done();
                                })),
                  SUCCESS);
      ++submitted;
      EXPECT_CODE(engine.submit(legacy(), operation([&cells, expected = submitted] {
                                  long sum = 0;
                                  for (const long cell : cells) {
                                    sum += cell;
                                  }
                                  EXPECT_EQ(sum, expected);
                                  return Outcome::done();
                                })),
                  SUCCESS);
    }
  });
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
}

TEST_F(ManyThreads, MixEverything) {
  std::atomic<int> ran{0};
  std::atomic<int> submitted{0};
  const auto work = [&ran, &submitted] {
    ++submitted;
    return operation([&ran, tries = 0]() mutable {
      if (++tries < 3) {
        return Outcome::again();
      }
      ++ran;
      return Outcome::done();
    });
  };
  in_threads([&](int me) {
    std::mt19937 random(static_cast<unsigned>(me));
    const auto other_context = engine.create_context();
    std::vector<StreamPointer> streams{stream(), stream(0), stream_in(other_context)};
    const auto point = event();
    for (int i = 0; i < rounds; ++i) {
      const auto& one = streams[random() % 2];
      EXPECT_CODE(engine.submit(one, work()), SUCCESS);
      EXPECT_CODE(engine.record_event(point, one), SUCCESS);
      EXPECT_CODE(engine.wait_event(streams[random() % 3], point), SUCCESS);
      (void)engine.first_unfinished_touching(0, 1);
      switch (random() % 6) {
        case 0:
          EXPECT_CODE(engine.synchronize_event(point), SUCCESS);
          break;
        case 1:
          EXPECT_CODE(engine.destroy_stream(streams[0]), SUCCESS);
          streams[0] = stream();
          break;
        case 2: {
          const auto captured = stream();
          GraphPointer graph;
          GraphExecPointer exec;
          EXPECT_CODE(engine.begin_capture(captured, abi::CU_STREAM_CAPTURE_MODE_RELAXED), SUCCESS);
          EXPECT_CODE(engine.submit(captured, work()), SUCCESS);
          EXPECT_CODE(engine.end_capture(captured, graph), SUCCESS);
          EXPECT_CODE(engine.instantiate(graph, exec), SUCCESS);
          EXPECT_CODE(engine.launch(exec, one), SUCCESS);
          break;
        }
        case 3:
          EXPECT_CODE(engine.submit_and_wait(legacy(), work()), SUCCESS);
          break;
        default:
          (void)engine.query_stream(one);
          break;
      }
    }
    for (const auto& one : streams) {
      EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
    }
    EXPECT_CODE(engine.destroy_context(other_context), SUCCESS);
  });
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
  EXPECT_EQ(ran, submitted);
}

TEST_F(ManyThreads, SeeAFailureOfOneContextOnly) {
  const auto doomed = engine.create_context();
  in_threads([&](int me) {
    const auto safe = stream();
    StreamPointer risky;
    if (!engine.create_stream(doomed, 0, 0, risky).ok()) {
      return;
    }
    for (int i = 0; i < rounds; ++i) {
      const abi::CUresult code = engine.submit(risky, me == 0 && i == rounds / 2 ? failing() : nothing()).code;
      EXPECT_TRUE(code == CUDA_SUCCESS || code == abi::CUDA_ERROR_ILLEGAL_ADDRESS);
      EXPECT_CODE(engine.submit(safe, nothing()), SUCCESS);
    }
    EXPECT_CODE(engine.synchronize_stream(safe), SUCCESS);
  });
  EXPECT_CODE(engine.synchronize_context(doomed), ERROR_ILLEGAL_ADDRESS);
}

TEST(ManyThreadsStepped, MayStepAtOnce) {
  Engine engine(stepped_scheduling(3));
  const auto context = engine.create_context();
  std::atomic<int> ran{0};
  in_threads([&](int) {
    StreamPointer mine;
    EXPECT_CODE(engine.create_stream(context, 0, 0, mine), SUCCESS);
    for (int i = 0; i < rounds; ++i) {
      EXPECT_CODE(engine.submit(mine, operation([&ran] {
                                  ++ran;
                                  return Outcome::done();
                                })),
                  SUCCESS);
      if (i % 8 == 0) {
        (void)engine.step();
      }
    }
    EXPECT_CODE(engine.synchronize_stream(mine), SUCCESS);
  });
  EXPECT_EQ(ran, thread_count * rounds);
}

}  // namespace
}  // namespace cuvmm::emulator::execution::test
