"""torch.compile for many cases at once, in other processes, into the cache on disk that this process then reads."""
import concurrent.futures, glob, multiprocessing, os


def _enter(folder):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # the processes themselves are the threads
    import torch
    torch.set_num_threads(1)


def _compile(data, device, modes, threads):
    import torch
    from .case import parse
    torch.set_num_threads(threads)  # part of what Inductor's CPU code is made for
    case = parse(data)
    problems = []
    for mode in modes:
        try:
            torch._dynamo.reset()
            f = torch.compile(case.torch_function(case.torch_constants(torch, device)), dynamic=False, **({"mode": mode} if mode else {}))
            with torch.no_grad(): f(*case.torch_inputs(torch, device))
        except Exception as e:
            problems.append(f"{case.name}: {type(e).__name__}: {str(e)[:200]}")
    if device == "cuda": torch.cuda.empty_cache()
    return problems


class Warmer:
    """Starts at once; wait() ends it and returns what failed."""
    def __init__(self, cases, device, modes, jobs, folder, threads):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.pool = concurrent.futures.ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_enter, initargs=(folder,))
        # The largest first: they hold the end up least then.
        order = sorted(cases, key=lambda c: -c.input_bytes())
        self.futures = [self.pool.submit(_compile, c.data(), device, modes, threads) for c in order]

    def wait(self, seconds=None):
        """After `seconds` what has not begun is left to the process that times it."""
        done, late = concurrent.futures.wait(self.futures, timeout=seconds)
        for f in late: f.cancel()
        problems = []
        for f in done:
            try: problems += f.result()
            except Exception as e: problems.append(f"{type(e).__name__}: {e}")
        self.pool.shutdown(wait=True, cancel_futures=True)
        # Choices that were made while other processes ran are measured again alone.
        for path in glob.glob(os.path.join(self.folder, "**", "*.best_config"), recursive=True): os.remove(path)
        return problems + ([f"{len(late)} cases were not compiled beforehand"] if late else [])
