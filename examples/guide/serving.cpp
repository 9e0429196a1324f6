// A cache of keys and values for each request to a language model.
//
//   serving [TRACE]
//
// TRACE lists requests (tools/traces/request_trace.hpp tells the formats); without one, some are made up.
#include <algorithm>
#include <cuvmm/cuvmm.hpp>
#include <deque>
#include <iomanip>
#include <iostream>

#include "driver/counting_driver.hpp"
#include "traces/request_trace.hpp"
#include "traces/synthetic_requests.hpp"

using cuvmm::traces::Request;
using Driver = cuvmm::Driver;
using Calls = cuvmm::driver::CountingDriver;
using cuvmm::driver::EntryPoint;

namespace {

constexpr std::size_t token_bytes = std::size_t{128} << 10;  // keys and values of all layers
constexpr std::chrono::milliseconds token_time{50};          // each sequence generates 20 tokens a second
constexpr std::size_t most_running = 64;                     // sequences at a time

struct Sequence {
  const Request* request;
  cuvmm::DeviceVector<std::byte> cache;
  std::uint64_t tokens;
};

struct Served {
  std::size_t peak_bytes = 0;       // of physical memory
  std::size_t peak_content = 0;     // of keys and values
  std::size_t peak_running = 0;     // sequences
  std::uint64_t started_again = 0;  // sequences, for want of memory
};

class Server {
 public:
  Server(const Driver& driver, const cuvmm::ChunkPolicy& chunks)
      : driver_(driver), source_(cuvmm::PhysicalSource::create(driver)), chunks_(chunks) {}

  Served serve(const std::vector<Request>& requests) {
    std::chrono::microseconds now{};
    auto next = requests.begin();
    while (next != requests.end() || !waiting_.empty() || !running_.empty()) {
      if (running_.empty() && waiting_.empty()) now = std::max(now, next->arrival);
      for (; next != requests.end() && next->arrival <= now; ++next) waiting_.push_back(&*next);
      while (!waiting_.empty() && running_.size() < most_running && start(*waiting_.front())) waiting_.pop_front();
      note();
      generate();
      now += token_time;
    }
    served_.peak_bytes = source_->counters().peak_bytes;
    return served_;
  }

 private:
  // guide: begin
  // Reserves the addresses that the sequence can need, and takes memory for its prompt.
  bool start(const Request& request) {
    auto cache = cuvmm::DeviceVector<std::byte>::create(
        driver_, {.capacity = (request.input_tokens + request.output_tokens + 1) * token_bytes,
                  .chunks = chunks_,
                  .source = source_});
    const auto grown = cache.buffer().try_resize(request.input_tokens * token_bytes);
    if (!grown && running_.empty()) cuvmm::raise(grown.failure());  // nobody is left who could end
    if (!grown) return false;
    running_.push_back({&request, std::move(cache), 0});
    return true;
  }

  // One token for each sequence. Where there is no memory, the one that began last gives back what it has.
  void generate() {
    for (std::size_t i = 0; i < running_.size(); ++i) {
      auto& [request, cache, tokens] = running_[i];
      if (++tokens > request->output_tokens) continue;
      const std::size_t bytes = (request->input_tokens + tokens) * token_bytes;
      while (i < running_.size() && !cache.buffer().try_resize(bytes)) put_back_the_last();
    }
    std::erase_if(running_, [](const Sequence& each) { return each.tokens > each.request->output_tokens; });
  }
  // guide: end

  void put_back_the_last() {
    if (running_.size() == 1) throw std::runtime_error("one sequence alone does not fit into the device's memory");
    waiting_.push_front(running_.back().request);
    running_.pop_back();
    ++served_.started_again;
  }

  void note() {
    std::size_t content = 0;
    for (const Sequence& each : running_) content += each.cache.size();
    served_.peak_content = std::max(served_.peak_content, content);
    served_.peak_running = std::max(served_.peak_running, running_.size());
  }

  Driver driver_;
  std::shared_ptr<cuvmm::PhysicalSource> source_;
  cuvmm::ChunkPolicy chunks_;
  std::deque<const Request*> waiting_;
  std::vector<Sequence> running_;  // in the order in which they began
  Served served_;
};

void print(const std::string& name, std::size_t bytes, std::size_t content, const std::string& created,
           const std::string& calls) {
  const double ratio = static_cast<double>(bytes) / static_cast<double>(std::max<std::size_t>(content, 1));
  std::cout << std::left << std::setw(30) << name << std::right << std::setw(16) << cuvmm::format_bytes(bytes)
            << std::setw(7) << std::fixed << std::setprecision(2) << ratio << std::setw(10) << created << std::setw(11)
            << calls << '\n';
}

}  // namespace

int main(int count, char** arguments) try {
  using cuvmm::ChunkPolicy;
  const auto requests =
      count > 1 ? cuvmm::traces::read_request_file(arguments[1]) : cuvmm::traces::synthetic_requests(200);
  const auto calls = std::make_shared<Calls>(Driver::open().shared_interface());
  const Driver driver = Driver::wrap(calls);
  const cuvmm::CurrentContext context(driver.device(cuvmm::DeviceOrdinal{0}));
  std::cout << requests.size() << " requests\n"
            << std::left << std::setw(30) << "chunks" << std::right << std::setw(16) << "peak" << std::setw(7)
            << "ratio" << std::setw(10) << "chunks" << std::setw(12) << "calls\n";
  Served served;
  // guide: begin
  for (const auto& chunks : {ChunkPolicy::bounded(0.02), ChunkPolicy::geometric(), ChunkPolicy::fixed(2 << 20)}) {
    calls->reset();
    served = Server(driver, chunks).serve(requests);
    const auto made = calls->snapshot();
    print(chunks.to_string(), served.peak_bytes, served.peak_content, std::to_string(made[EntryPoint::cuMemCreate]),
          std::to_string(made.total()));
  }
  // guide: end
  std::uint64_t longest = 0;
  for (const Request& each : requests) longest = std::max(longest, each.input_tokens + each.output_tokens);
  print("allocated for the worst case", served.peak_running * longest * token_bytes, served.peak_content, "-", "-");
  std::cout << "keys and values at most " << cuvmm::format_bytes(served.peak_content) << ", of " << served.peak_running
            << " sequences; " << served.started_again << " begun again for want of memory\n";
} catch (const std::exception& error) {
  std::cerr << "serving: " << error.what() << '\n';
  return 1;
}
