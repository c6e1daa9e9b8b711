// The kernel templates: the library holds them as they stand in the tree, and each compiles with the
// stub cell before it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/nvrtc.h"
#include "tests/gpu/fixtures.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

/// A file with the text of what it includes in the place of the lines that include it.
std::string expanded(const fs::path& path) {
  static const std::string open = "#include \"kernels-templates/abi/";
  std::istringstream lines(text_of(path));
  const bool on_device = path.extension() == ".cuh";
  std::string text, line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (!line.starts_with(open)) {
      text += line + "\n";
      continue;
    }
    const fs::path included = line.substr(open.size(), line.rfind('"') - open.size());
    if (on_device) text += fmt::format("#line 1 \"{}\"\n", included.filename().string());
    const fs::path abi = CELLC_SOURCE_DIR "/kernels-templates/abi";
    text += on_device ? text_of(abi / included) : expanded(abi / included);
    if (on_device) text += fmt::format("#line {} \"{}\"\n", number + 1, path.filename().string());
  }
  return text;
}

TEST(KernelTemplates, AreThoseOfTheTree) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(CELLC_SOURCE_DIR "/kernels-templates")) {
    if (entry.path().extension() != ".cuh" && entry.path().extension() != ".h") continue;
    const std::string name = entry.path().filename();
    files.insert(name);
    EXPECT_EQ(kernel_template(name), expanded(entry.path())) << name;
    // What is shipped has no other files to include.
    EXPECT_EQ(kernel_template(name).find("#include \"kernels-templates/abi"), std::string_view::npos) << name;
  }
  EXPECT_EQ(kernel_templates().size(), files.size());
  EXPECT_TRUE(files.contains("stub_cell.cuh"));
  EXPECT_THROW(kernel_template("missing.cuh"), std::logic_error);
}

/// What a template stands on, beside preamble, functions and cell; and what has the compiler instantiate it.
struct Use {
  std::vector<std::string> after;
  std::string kernels;
};
const std::map<std::string, Use> kUses = {
    {"shifted_rows.cuh", {{"gradient_arguments.cuh", "shifted_rows.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::PreviousRows p) { cellc::previous_rows(p); }
)"}},
    {"scaled_cotangents.cuh", {{"gradient_arguments.cuh", "scaled_cotangents.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::ScaledCotangents p) {
  cellc::largest_cotangent(p);
  cellc::scale_cotangents(p);
}
)"}},
    {"step_sums.cuh", {{"gradient_arguments.cuh", "step_sums.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::StepSums s) { cellc::finish_sums(s); }
)"}},
    {"shipped_sums.cuh", {{"gradient_arguments.cuh", "shifted_rows.cuh", "step_sums.cuh"}, R"(
extern "C" __global__ void stub_tables(const __grid_constant__ cellc::OffsetTables p) { cellc::fill_tables(p); }
extern "C" __global__ void stub_columns(const __grid_constant__ cellc::SumsInARow p) { cellc::columns_in_a_row(p); }
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::SumsInARow p) { cellc::products_in_a_row(p); }
)"}},
    {"shipped_shifts.cuh", {{"call.cuh", "gradient_arguments.cuh", "shifted_rows.cuh"}, R"(
extern "C" __global__ void stub_earlier(const __grid_constant__ cellc::ShiftedRows p) { cellc::earlier_rows(p); }
extern "C" __global__ void stub_later(const __grid_constant__ cellc::ShiftedRows p) { cellc::add_later_rows(p); }
extern "C" __global__ void stub_past(const __grid_constant__ cellc::ShiftedRows p) { cellc::add_past_to_start(p); }
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::ShiftedRows p) { cellc::add_later_history(p); }
)"}},
    {"step_sums_tensor.cuh", {{"gradient_arguments.cuh", "step_sums.cuh", "tensor_parts.cuh", "tensor_tile.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::StepSums s) {
  CELLC_DYNAMIC_SHARED(float, stages);
  CELLC_TENSOR_SCRATCH(scratch);
  cellc::TensorSum<64>{s, stages, scratch}.run();
}
)"}},
    {"nests.cuh", {{"nest_frame.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::NestFrame f) {
  const cellc::RowPlace place = cellc::place_of(f, threadIdx.x);
  Real* const memory = cellc::block_memory(f, nullptr, -1);
  const int threads = cellc::threads_of_sum(f.rows, f.sequences, true, 1);
  const Real step = static_cast<Real>(cellc::step_of(f, place.row).elapsed);
  memory[threadIdx.x] = cellc::sum_of_threads(step, threads) + cellc::largest_of_threads(step, threads);
}
)"}},
    {"product.cuh", {{"nest_frame.cuh", "nests.cuh"}, ""}},
    {"exchange.cuh", {{}, R"(
extern "C" __global__ void stub_kernel() {
  __shared__ cellc::Mailbox mailbox;
  __shared__ cellc::Piece to;
  cellc::open_exchange(&mailbox);
  cellc::expect_pieces(&mailbox, 16);
  cellc::send_piece(&mailbox, &to, 0, cellc::Piece{});
  cellc::await_pieces(&mailbox, 0, 16);
}
)"}},
    {"group_exchange.cuh", {{"exchange.cuh", "stub_persistent.cuh"}, R"(
extern "C" __global__ void stub_kernel(cellc::GroupHeader* group, cellc::Piece* pieces) {
  cellc::group_arrive(group);
  cellc::Piece piece = {};
  piece.at[3] = cellc::tag_of(1);
  cellc::put_piece(pieces, piece);
  while (piece.at[3] != cellc::tag_of(3)) cellc::get_piece(piece, pieces + 1);
  cellc::group_wait(group);
}
)"}},
    {"persistent.cuh",
     {{"nest_frame.cuh", "nests.cuh", "exchange.cuh", "stub_persistent.cuh", "group_exchange.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::NestFrame f, Real* x) {
  const cellc::Slot slot = cellc::slot_of(f, threadIdx.x);
  const cellc::Told<Real, 16, 36> told{x, nullptr, cellc::persistent_rank()};
  const cellc::Weights<1> weights{{x}, {16}, {1}, 16, slot.steps};
  cellc::StationaryRows<1, 16, 32, 36> product;
  product.load(weights, x);
  told.tell(x, 1);
  told.await(1);
  const Real* const values[1] = {told.at(1)};
  product.multiply(values, x, weights);
  const cellc::ToldInGroup<Real, 16, 36> in_group{x, reinterpret_cast<cellc::Piece*>(x), cellc::persistent_rank()};
  in_group.tell(x, 1);
  in_group.await(1);
}
)"}},
    {"tensor_tile.cuh", {{"tensor_parts.cuh"}, R"(
extern "C" __global__ void stub_kernel(float* to) {
  CELLC_DYNAMIC_SHARED(float, stages);
  CELLC_TENSOR_SCRATCH(scratch);
  using Tile = cellc::TensorTile<128, 64, true, false>;
  typename Tile::Sums sums = {};
  Tile{stages, 2, scratch}.add(sums, 1, [](float*, float*) {});
  Tile::put(sums, 64, [&](int row) { return to + row * 64; }, [](int, int) { return 0.f; });
}
)"}},
    {"product_wgmma.cuh",
     {{"nest_frame.cuh", "nests.cuh", "tensor_parts.cuh", "tensor_tile.cuh", "product_tensor.cuh", "wgmma.cuh",
       "product_ring.cuh"},
      ""}},
    {"product_stored.cuh",
     {{"nest_frame.cuh", "nests.cuh", "tensor_parts.cuh", "tensor_tile.cuh", "product_tensor.cuh", "wgmma.cuh",
       "product_ring.cuh"},
      ""}},
    {"product_tensor.cuh", {{"nest_frame.cuh", "nests.cuh", "tensor_parts.cuh", "tensor_tile.cuh"}, ""}},
    {"wgmma.cuh", {{"tensor_parts.cuh"}, R"(
extern "C" __global__ void stub_kernel(float* to) {
  cellc::WideSums sums = {};
  cellc::wide_fence();
  cellc::wide_multiply<cellc::WideFactors::Tf32>(sums, cellc::LeftPart{}, cellc::columns_at(to), false, nullptr);
  cellc::wide_wait<0>();
  to[threadIdx.x] = sums[0][0];
}
)"}},
    {"product_ring.cuh",
     {{"nest_frame.cuh", "nests.cuh", "tensor_parts.cuh", "tensor_tile.cuh", "product_tensor.cuh", "wgmma.cuh"}, ""}},
    {"sweep.cuh", {{"lanes.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Lanes lanes, long long count) {
  cellc::Lane lane[cellc::kWidth];
  cellc::resolve_own(lanes, threadIdx.x, count, lane);
  cellc::Rows rows;
  rows.begin(lanes, lane[0], 0);
  const Real now[cellc::kWidth][Step::kStates] = {};
  rows.write(now, true);
}
)"}},
    {"sums.cuh", {{"lanes.cuh", "sweep.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Lanes lanes) {
  cellc::Sums<1> sums;
  sums.begin(lanes, cellc::resolve(lanes, threadIdx.x), 0);
  const Real now[cellc::kWidth][Step::kStates] = {};
  sums.add(now);
}
)"}},
    {"accumulators.cuh", {{"lanes.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Lanes lanes) {
  const Real now[1][Step::kStates] = {};
  cellc::Accumulators<1> all;
  all.add(now);
  all.join(1);
  all.leave(lanes, cellc::resolve(lanes, threadIdx.x), 0);
}
)"}},
    {"outer_sums.cuh", {{"lanes.cuh", "sweep.cuh", "sums.cuh", "accumulators.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Lanes lanes) {
  __shared__ Real left[2];
  cellc::OuterSums<1> sums(lanes, cellc::resolve(lanes, threadIdx.x), left);
  const Real now[cellc::kWidth][Step::kStates] = {};
  sums.add(now);
  cellc::add_parts(left, 1, 2);
}
)"}},
    {"sequential.cuh", {{"lanes.cuh", "sweep.cuh", "sums.cuh", "accumulators.cuh", "outer_sums.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Lanes lanes) { cellc::sequential<true, true>(lanes); }
)"}},
    {"maps.cuh", {{"lanes.cuh"}, R"(
struct Map : cellc::MatrixMap<TransitionRule, 1, Map> {
  CELLC_DEVICE void apply(cellc::ExactChange<1, true>& change) const { change.at[0] = matrix[0] * change.at[0] + offset[0]; }
};
extern "C" __global__ void stub_kernel(Real* x) {
  Map map;
  map.set([&](int i) { return x[i]; }, [&](int i, int j) { return Map::entry(i, j, Real(0), [&](int c) { return x[c]; }); });
  map.shuffle_up(1);
  cellc::ExactChange<1, true> change{{1}};
  map.apply(change);
  *x = change.at[0];
}
)"}},
    {"semirings.cuh", {{"lanes.cuh", "maps.cuh"}, R"(
extern "C" __global__ void stub_kernel(Real* x) {
  cellc::SemiringTransitions<TransitionRule, 1, 5>::zero() < *x ? *x = 0 : *x = 1;
}
)"}},
    {"transitions.cuh", {{"lanes.cuh", "maps.cuh", "semirings.cuh"}, R"(
extern "C" __global__ void stub_kernel(Real* x) {
  cellc::Transitions::Map map;
  map.identity();
  map.move(*reinterpret_cast<Real(*)[cellc::kCarried]>(x));
}
)"}},
    {"scan_tile.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "accumulators.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Scan run) {
  CELLC_DYNAMIC_SHARED(char, shared);
  cellc::ScanTile<cellc::ScanCopy::Contiguous>(run, shared).ask(0);
}
)"}},
    {"scan_repair.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "accumulators.cuh", "scan_tile.cuh"},
      R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Scan run) {
  __shared__ unsigned told;
  cellc::repair<cellc::ScanCopy::Contiguous>(run, 4, &told, false);
}
)"}},
    {"scan.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "accumulators.cuh", "scan_tile.cuh",
       "scan_repair.cuh"},
      R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Scan run) { cellc::scan<cellc::ScanCopy::Contiguous>(run); }
)"}},
    {"boundary.cuh", {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Lanes lanes, Real* x) {
  x[2] = cellc::begins_where(lanes, cellc::resolve(lanes, threadIdx.x), 0, x, x + 1, Real(1e-6), x, x);
}
)"}},
    {"two_passes.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "boundary.cuh", "sums.cuh",
       "accumulators.cuh", "outer_sums.cuh", "sequential.cuh"},
      R"(
extern "C" __global__ void ends(const __grid_constant__ cellc::TwoPasses run) { cellc::segment_ends<true>(run); }
extern "C" __global__ void sums(const __grid_constant__ cellc::TwoPasses run) { cellc::segment_sums<false, 16>(run); }
extern "C" __global__ void beside(const __grid_constant__ cellc::TwoPasses run) { cellc::compose_starts(run); cellc::check_boundaries(run); }
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::TwoPasses run) { cellc::walk_again<false, 16>(run); }
)"}},
    {"scan_rewalk.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "boundary.cuh", "accumulators.cuh"},
      R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::ScanRewalk run) { cellc::scan_rewalk(run); }
)"}},
    {"scan_tma.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "accumulators.cuh", "scan_tile.cuh"},
      R"(
extern "C" __global__ void stub_kernel(float* to) {
  __shared__ float shared[4];
  if (cellc::kBulk) cellc::bulk_store(to, shared, 16);
}
)"}},
    {"scan_stream.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "accumulators.cuh", "scan_tile.cuh",
       "scan_repair.cuh", "scan.cuh", "scan_tma.cuh"},
      R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Scan run) { cellc::scan_stream<cellc::ScanCopy::Contiguous>(run); }
)"}},
    {"scan_cluster.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "accumulators.cuh", "scan_tile.cuh",
       "scan_repair.cuh", "scan.cuh"},
      R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Scan run) { cellc::scan_cluster(run); }
)"}},
    {"segments.cuh", {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Segmented run) {
  cellc::Lane lane = cellc::resolve(run.lanes, threadIdx.x);
  cellc::step_from_both(run.lanes, lane, 0, run.began, run.ended, run.starts, run.sizes);
}
)"}},
    {"hermite.cuh", {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh"}, R"(
extern "C" __global__ void stub_kernel(Real* x, const cellc::Runs* runs) {
  cellc::HermiteMap bend;
  bend.take(x[0], *runs, true);
  bend.fit(x[3], x[4], x[6]);
  bend.follow(x[5], x[3], x[4]);
}
)"}},
    {"compose.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh", "hermite.cuh"}, R"(
struct Work {
  const cellc::Segmented& run;
  const cellc::Lanes& lanes;
  long long count;
  cellc::ActiveBlocks active_blocks;
  int thread, warp, warps;
};
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Segmented run) {
  cellc::compose<cellc::Transitions>(cellc::Chains(Work{run, run.lanes, 32, {0, 1}, static_cast<int>(threadIdx.x), 0, 1}, cellc::Maps::Bent, cellc::ResidualBudget{}), 32, 1);
}
)"}},
    {"segment_work.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh", "hermite.cuh"}, R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Segmented run) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  cellc::SegmentWork work(run, shared);
  work.begin_call(1, 0);
  work.note(work.growth_of(work.first_lane(0)));
  work.report();
}
)"}},
    {"first_sweep.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh", "hermite.cuh",
       "segment_work.cuh"},
      R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Segmented run) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  cellc::SegmentWork work(run, shared);
  work.begin_call(1, 0);
  cellc::Lane lane[cellc::kWidth];
  cellc::resolve_own(run.lanes, work.first_lane(0), work.count, lane);
  work.sum(cellc::sweep<true>(work, 0, lane, 8, false) + cellc::grown_apart(work, 0, 8));
}
)"}},
    {"segment_runs.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh", "hermite.cuh",
       "segment_work.cuh"},
      R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Segmented run) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  cellc::SegmentWork work(run, shared);
  work.begin_call(1, 0);
  unsigned expand = 0;
  work.sum(cellc::all_tiles<true>(work, cellc::LanePass::Again, 0, 8, run.tolerance, expand));
}
)"}},
    {"chain_walk.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh", "hermite.cuh",
       "segment_work.cuh", "segment_runs.cuh"},
      R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Segmented run) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  cellc::SegmentWork work(run, shared);
  work.begin_call(1, 0);
  cellc::mark_off(work, 0, true);
  work.sum(cellc::walk_chains<true>(work));
}
)"}},
    {"multistart.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh", "hermite.cuh"}, R"(
extern "C" __global__ void stub_kernel(Real* x) {
  Real next[cellc::Multistart::kStates];
  cellc::Multistart::step(x, x + 3, x + 6, next, nullptr);
  x[6] = next[0] - next[2];
}
)"}},
    {"segmented.cuh",
     {{"lanes.cuh", "sweep.cuh", "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh", "hermite.cuh",
       "segment_work.cuh", "first_sweep.cuh", "segment_runs.cuh", "chain_walk.cuh", "compose.cuh", "multistart.cuh"},
      R"(
extern "C" __global__ void stub_kernel(const __grid_constant__ cellc::Segmented run) { cellc::segmented<true>(run); }
)"}},
};

GpuSource alone(const std::string& name, const std::string& storage) {
  std::vector<std::string> parts = {"preamble.cuh", "math.cuh", "stub_traits.cuh", "stub_cell.cuh"};
  const auto use = kUses.find(name);
  if (use != kUses.end()) parts.insert(parts.end(), use->second.after.begin(), use->second.after.end());
  if (std::find(parts.begin(), parts.end(), name) == parts.end()) parts.push_back(name);
  GpuSource source{name + "-" + storage + ".cu", "#define CELLC_STORAGE_" + storage + " 1\n", {}};
  // A line directive each, so that messages speak of the file that a reader can open.
  for (const std::string& part : parts) source.text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  if (use != kUses.end()) source.text += "#line 1 \"kernels\"\n" + use->second.kernels;
  return source;
}

class WideTemplates : public WithNvrtc {};
class TemplatesTest : public WithNvrtc, public testing::WithParamInterface<std::string> {};

TEST_P(TemplatesTest, CompilesAloneWithTheStubCell) {
  // Every storage and every architecture once: all twelve pairs would take minutes. A run in turns compiles one.
  const std::vector<std::tuple<const char*, const char*, CompiledKind>> settings = {
      {"F32", "sm_90", CompiledKind::Cubin},
      {"F64", "sm_100", CompiledKind::Ptx},
      {"F16", "sm_90", CompiledKind::Ptx},
      {"BF16", "sm_80", CompiledKind::Ptx}};
  for (const auto& [storage, architecture, kind] : turns::Turn().of(settings)) {
    try {
      const CompiledKernels kernels = compile_cuda(quick(alone(GetParam(), storage)), architecture, kind);
      if (kUses.contains(GetParam())) {
        const bool whole = GetParam().starts_with("product");  // has its kernel already
        EXPECT_TRUE(has(kernels.code, whole ? "cellc_product" : "stub_kernel"));
      }
    } catch (const DeviceError& e) {
      ADD_FAILURE() << storage << ": " << e.what();
    }
  }
}

/// Instructions of one card alone are text to every other.
TEST_F(WideTemplates, CompileForTheirCard) {
  for (const auto& [name, storage, factors] : {std::tuple{"product_wgmma.cuh", "F32", "3XTF32"},
                                               {"product_wgmma.cuh", "F32", "BF16"},
                                               {"product_stored.cuh", "BF16", "3XTF32"},
                                               {"product_stored.cuh", "F16", "F16"}}) {
    SCOPED_TRACE(fmt::format("{} of {}, {}", name, storage, factors));
    GpuSource source = alone(name, storage);
    source.text = fmt::format("#define CELLC_PRODUCTS_{} 1\n{}", factors, source.text);
    EXPECT_TRUE(has(compile_cuda(quick(source), "sm_90a", CompiledKind::Ptx).code, "wgmma.mma_async"));
  }
}

/// Of what runs on a device: headers for hosts are compiled with what is shipped (aot_files_test.cc).
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const KernelTemplate& one : kernel_templates())
    if (one.name.ends_with(".cuh")) names.emplace_back(one.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, TemplatesTest, testing::ValuesIn(all_names()),
                         [](const auto& each) { return each.param.substr(0, each.param.find('.')); });

}  // namespace
}  // namespace cellc
